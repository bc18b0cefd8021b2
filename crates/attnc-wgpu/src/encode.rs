//! Recording a bound plan into the host's encoder.

use crate::bind::Dispatch;
use crate::{Executable, Io};

impl Executable {
    /// Sets what steps count with to 0, then records all steps, as one compute pass, but that a new one starts where
    /// buffers are copied into images before a step. Nothing is allocated or compiled.
    ///
    /// wgpu orders the dispatches by what they read and write, also against passes of the host before
    /// and after.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, io: &Io) {
        self.counters.reset(encoder);
        for dispatches in io.dispatches.chunk_by(|_, next| next.copies.is_empty()) {
            record_copies(encoder, &dispatches[0]);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: Some(&self.plan.model),
                timestamp_writes: None,
            });
            let mut current = None;
            for dispatch in dispatches {
                if current != Some(dispatch.kernel) {
                    pass.set_pipeline(&self.pipelines[dispatch.kernel].pipeline);
                    current = Some(dispatch.kernel);
                }
                record(&mut pass, dispatch);
            }
        }
    }
}

/// What has to be in images before the step.
pub(crate) fn record_copies(encoder: &mut wgpu::CommandEncoder, dispatch: &Dispatch) {
    for copy in &dispatch.copies {
        copy.record(encoder);
    }
}

/// Bind groups and dispatch; the pipeline is set.
pub(crate) fn record(pass: &mut wgpu::ComputePass<'_>, dispatch: &Dispatch) {
    for (group, bind_group) in &dispatch.groups {
        pass.set_bind_group(*group, bind_group, &[]);
    }
    let [x, y, z] = dispatch.workgroups;
    pass.dispatch_workgroups(x, y, z);
}
