//! Which shape a row kernel takes on a device, and for which rows.
//!
//! | shape | who owns a row | for |
//! | --- | --- | --- |
//! | `…_rows` | one invocation | rows that are short, or do not lie one after the other in memory |
//! | `…_lanes` over `lanes/subgroup` | one subgroup | devices whose subgroups all have one size |
//! | `…_lanes` over `lanes/subgroups` | a workgroup of several subgroups | long rows, devices whose subgroups differ |
//! | `…_lanes` over `lanes/workgroup` | a workgroup | devices without subgroup operations |
//!
//! A function of profile and length alone. Results differ by the order of their sums only.

use crate::choice::is_cpu;
use crate::params;
use attnc_ir::Dim;
use attnc_plan::DeviceProfile;

/// The lanes that share a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lanes {
    /// How many: a power of two of at most [`MOST`], and the size of the workgroup.
    pub(super) count: u32,
    /// The file for the slot `lanes`: how they exchange values.
    pub(super) file: &'static str,
    /// What subgroups have at least, where several share a row.
    pub(super) subgroup_min: Option<u32>,
}

/// What `lib/lanes_sum` is written for.
const MOST: u32 = 256;

/// Lanes of a row whose length is known at run time only, on a GPU: rows of attention scores and hidden states.
const UNKNOWN: u32 = 128;

/// The lanes that share rows of `packs` loads each, or `None` where a lane would have less than `least` of them, so
/// that the reductions are not worth it.
pub(super) fn lanes(profile: &DeviceProfile, packs: &Dim, least: i64) -> Option<Lanes> {
    let limits = &profile.limits;
    let most = MOST.min(limits.invocations).min(limits.workgroup_size[0]);
    let most = 1 << most.max(1).ilog2();
    let subgroups = profile.features.subgroups;
    let (min, max) = subgroups.map_or((32, 32), |s| (s.min.max(1), s.max.max(1)));
    let wanted = match packs.as_const() {
        // Four loads each keep enough of them in flight.
        Some(n) => u32::try_from(n / 4).unwrap_or(MOST).clamp(1, MOST),
        None => UNKNOWN,
    };
    // On a CPU more lanes for a row would run one after the other.
    let count = if is_cpu(profile) {
        max
    } else {
        wanted.max(max)
    };
    let count = count.min(most).next_power_of_two().min(most);
    let short = packs
        .as_const()
        .is_some_and(|n| n < least * i64::from(count));
    if short || count < 2 {
        return None;
    }
    let (file, subgroup_min) = match subgroups {
        None => ("lanes/workgroup", None),
        Some(_) if count <= min => ("lanes/subgroup", None),
        Some(_) => ("lanes/subgroups", Some(1 << min.ilog2())),
    };
    Some(Lanes {
        count,
        file,
        subgroup_min,
    })
}

impl Lanes {
    /// The lines of `params` that the file needs.
    pub(super) fn params(&self) -> String {
        let constant =
            |min: u32| params::constants(&[("SUBGROUP_SIZE_MIN", "u32", format!("{min}u"))]);
        self.subgroup_min.map(constant).unwrap_or_default()
    }

    /// For people: `8 lanes a row: one subgroup`.
    pub(super) fn describe(&self) -> String {
        let exchange = match (self.file, self.subgroup_min) {
            ("lanes/subgroup", _) => "one subgroup".to_owned(),
            (_, Some(min)) => format!("subgroups of {min} or more"),
            _ => "a workgroup".to_owned(),
        };
        format!("{} lanes a row: {exchange}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnc_plan::SubgroupSizes;

    fn with(min: u32, max: u32) -> DeviceProfile {
        let mut profile = DeviceProfile::desktop();
        profile.features.subgroups = Some(SubgroupSizes { min, max });
        profile
    }

    fn choice(profile: &DeviceProfile, packs: impl Into<Dim>) -> Option<(u32, &'static str)> {
        lanes(profile, &packs.into(), 2).map(|l| (l.count, l.file))
    }

    #[test]
    fn one_subgroup_owns_a_row_where_all_have_one_size() {
        let lavapipe = with(8, 8);
        assert_eq!(choice(&lavapipe, 96), Some((8, "lanes/subgroup")));
        assert_eq!(choice(&lavapipe, "S"), Some((8, "lanes/subgroup")));
        assert_eq!(choice(&lavapipe, 4096), Some((8, "lanes/subgroup")));
        assert_eq!(choice(&with(32, 32), 96), Some((32, "lanes/subgroup")));
    }

    #[test]
    fn several_own_it_where_sizes_differ_or_rows_are_long() {
        let (nvidia, intel) = (with(32, 32), with(8, 32));
        assert_eq!(choice(&nvidia, 1024), Some((256, "lanes/subgroups")));
        assert_eq!(
            lanes(&nvidia, &1024.into(), 1).unwrap().subgroup_min,
            Some(32)
        );
        assert_eq!(choice(&intel, 96), Some((32, "lanes/subgroups")));
        assert_eq!(lanes(&intel, &96.into(), 1).unwrap().subgroup_min, Some(8));
        assert_eq!(choice(&nvidia, "S"), Some((128, "lanes/subgroups")));
    }

    #[test]
    fn a_workgroup_owns_it_where_there_are_no_subgroups() {
        let web = DeviceProfile::webgpu();
        assert_eq!(choice(&web, 96), Some((32, "lanes/workgroup")));
        let mut small = web.clone();
        small.limits.invocations = 100;
        assert_eq!(choice(&small, "S"), Some((64, "lanes/workgroup")));
    }

    #[test]
    fn an_invocation_owns_a_short_row() {
        assert_eq!(choice(&with(8, 8), 15), None);
        assert_eq!(choice(&DeviceProfile::webgpu(), 63), None);
        assert_eq!(choice(&with(1, 1), 4096), None);
    }
}
