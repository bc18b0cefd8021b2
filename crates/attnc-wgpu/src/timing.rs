//! Timing each step with timestamp queries.
//!
//! Each step gets a pass of its own, with a timestamp at either end: passes are what every device with
//! timestamps can time. The sum is therefore a little more than one pass over all steps takes. What is copied into
//! images for a step is in its time.

use crate::bind::{Dispatch, Io};
use crate::readback::Staging;
use crate::{Error, Executable, encode};

/// Two timestamps a step; a query set holds 4096.
const STEPS_PER_SET: usize = (wgpu::QUERY_SET_MAX_QUERIES / 2) as usize;

/// How long a step took on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Position in the plan. Steps with nothing to do at these lengths are not listed.
    pub step: usize,
    /// Nanoseconds.
    pub nanoseconds: f64,
}

impl Executable {
    /// Runs a bound plan once and says how long each step took on the device.
    ///
    /// # Errors
    /// Where the device was opened without timestamps, or fails.
    pub fn profile(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        io: &Io,
    ) -> Result<Vec<StepTime>, Error> {
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Err(Error::NoTimestamps);
        }
        let mut times = Vec::with_capacity(io.dispatches.len());
        for dispatches in io.dispatches.chunks(STEPS_PER_SET) {
            let ticks = self.guarded(device, "timing", || {
                self.timestamps(device, queue, dispatches)
            })?;
            let period = f64::from(queue.get_timestamp_period());
            let pairs = dispatches.iter().zip(ticks.as_chunks::<2>().0);
            times.extend(pairs.map(|(dispatch, [start, end])| StepTime {
                step: dispatch.step,
                nanoseconds: end.saturating_sub(*start) as f64 * period,
            }));
        }
        Ok(times)
    }

    /// Start and end of each dispatch, in ticks.
    fn timestamps(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        dispatches: &[Dispatch],
    ) -> Result<Vec<u64>, Error> {
        let count = u32::try_from(dispatches.len() * 2).unwrap_or(wgpu::QUERY_SET_MAX_QUERIES);
        let queries = device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("attnc step times"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let size = u64::from(count) * 8;
        let resolved = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("attnc step times"),
            size,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let staging = Staging::new(device, "attnc step times", size);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.counters.reset(&mut encoder);
        for (dispatch, first) in dispatches.iter().zip((0..count).step_by(2)) {
            let label = Some(self.plan.steps[dispatch.step].op.as_str());
            let writes = |beginning, end| wgpu::ComputePassTimestampWrites {
                query_set: &queries,
                beginning_of_pass_write_index: beginning,
                end_of_pass_write_index: end,
            };
            let (start, end) = (Some(first), Some(first + 1));
            let copies = !dispatch.copies.is_empty();
            if copies {
                // Copies lie between passes: an empty one in front of them has the time at which they start.
                drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label,
                    timestamp_writes: Some(writes(start, None)),
                }));
                encode::record_copies(&mut encoder, dispatch);
            }
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label,
                timestamp_writes: Some(writes(start.filter(|_| !copies), end)),
            });
            pass.set_pipeline(&self.pipelines[dispatch.kernel].pipeline);
            encode::record(&mut pass, dispatch);
        }
        encoder.resolve_query_set(&queries, 0..count, &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &staging.buffer, 0, Some(size));
        queue.submit([encoder.finish()]);
        staging.read(device, size, &"timing steps", |bytes| {
            bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| u64::from_le_bytes(*b))
                .collect()
        })
    }
}
