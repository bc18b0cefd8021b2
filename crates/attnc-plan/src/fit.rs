//! Whether a kernel is well formed, and whether it fits a device.

use crate::binding::list;
use crate::images::MAX_IMAGES;
use crate::{Access, DeviceProfile, KernelArtifact};
use std::collections::BTreeSet;

/// Whether a kernel's name can be a file name everywhere: letters, digits, `.`, `-`, `_`, not
/// starting with a dot.
pub(crate) fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.chars().all(plain)
}

/// Bind groups of a pipeline, and bindings of a group, that WebGPU guarantees.
const MAX_GROUPS: u32 = 4;
const MAX_BINDINGS: u32 = 1000;

impl KernelArtifact {
    /// What is wrong with the kernel whatever the device, one line each.
    pub(crate) fn misshapes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !is_file_name(&self.name) {
            wrong.push("the name may have letters, digits, `.`, `-` and `_` only".to_owned());
        }
        if self.entry.is_empty() || self.wgsl.is_empty() {
            wrong.push("it needs an entry point and WGSL text".to_owned());
        }
        if self
            .bindings
            .iter()
            .filter(|b| b.access == Access::Uniform)
            .count()
            > 1
        {
            wrong.push("it binds more than one uniform struct".to_owned());
        }
        let mut places = BTreeSet::new();
        for b in &self.bindings {
            if b.group >= MAX_GROUPS || b.binding >= MAX_BINDINGS {
                wrong.push(format!(
                    "@group({}) @binding({}) is past the {MAX_GROUPS} groups of {MAX_BINDINGS} bindings",
                    b.group, b.binding
                ));
            }
            if !places.insert((b.group, b.binding)) {
                wrong.push(format!(
                    "@group({}) @binding({}) occurs twice",
                    b.group, b.binding
                ));
            }
        }
        if self.workgroup_size.contains(&0) {
            wrong.push(format!("a workgroup of {:?} is empty", self.workgroup_size));
        }
        wrong
    }

    /// What of the kernel is over a device's limits or needs a feature it lacks, one line each; empty
    /// where it fits.
    #[must_use]
    pub fn misfits(&self, profile: &DeviceProfile) -> Vec<String> {
        let limits = &profile.limits;
        let storage = self.storage_bindings();
        let (images, buffers): (Vec<_>, Vec<_>) = storage.partition(|b| b.access == Access::Image);
        let mut rows = vec![
            ("images", images.len() as u64, MAX_IMAGES as u64),
            (
                "storage buffers",
                buffers.len() as u64,
                u64::from(limits.storage_buffers),
            ),
            (
                "bytes of workgroup memory",
                self.workgroup_bytes.into(),
                limits.workgroup_bytes.into(),
            ),
            ("invocations", self.invocations(), limits.invocations.into()),
        ];
        let axes = [
            "invocations along x",
            "invocations along y",
            "invocations along z",
        ];
        for (axis, what) in axes.into_iter().enumerate() {
            rows.push((
                what,
                self.workgroup_size[axis].into(),
                limits.workgroup_size[axis].into(),
            ));
        }
        let over = rows.into_iter().filter(|(_, have, limit)| have > limit);
        let mut wrong: Vec<_> = over
            .map(|(what, have, limit)| {
                format!("{have} {what}; `{}` has at most {limit}", profile.name)
            })
            .collect();
        let missing = self
            .features
            .iter()
            .filter(|f| !profile.has(**f))
            .map(|f| format!("{f:?}"));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            let names = list(missing.iter().map(String::as_str));
            wrong.push(format!(
                "it needs {names}, which `{}` does not have",
                profile.name
            ));
        }
        wrong
    }
}
