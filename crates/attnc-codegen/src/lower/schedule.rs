//! Which tiles a workgroup computes: the slot `schedule` of kernels whose workgroups are one subgroup.
//!
//! Where subgroups are the vector units of a CPU, a driver gives each of its threads a share of the workgroups
//! beforehand and waits for the last one, on cores that others use as well. There few workgroups are launched, and take
//! tiles as they come, by a counter of the plan that is 0 when a run begins (`schedule/dynamic`). Elsewhere a workgroup
//! has one tile (`schedule/static`).
//!
//! ```text
//! 256 tiles of 150 turns: a workgroup takes at most 65534 / 151 = 434; 32 workgroups are launched
//! 256 tiles of 19000:     a workgroup takes at most 3;                171 workgroups are launched
//! ```
//!
//! On entry: a dispatch of a workgroup a tile, and the turns ([`super::turns`]) that a tile takes at most whatever its
//! data. On exit: however many tiles its first workgroups take, the others may take the rest, and none takes more turns
//! than a driver has that counts them, unless a tile alone does.

use super::Lowerer;
use super::kernel::Dispatch;
use super::turns::{Turns, number};
use crate::choice::is_cpu;
use crate::mods::Field;
use attnc_ir::{DType, Dim, Extents};
use attnc_plan::{Buffer, BufferId, BufferKind, LLVMPIPE_LOOP_TURNS};

/// Workgroups that are launched at least, if there are as many tiles: no fewer than a software rasteriser has threads
/// on another machine than this one (llvmpipe: 16, later 32), since a thread without a workgroup takes no tile.
const WORKGROUPS: u32 = 32;

/// Tiles that all workgroups may take, for each that there is: of two threads, one may take them all.
const SPARE: i64 = 2;

impl Lowerer<'_> {
    /// Fills the slot of a dispatch, whose tiles take so many turns at the worst.
    pub(super) fn schedule(&mut self, dispatch: &mut Dispatch, at_worst: &Turns) {
        let bound = dispatch.operands.len() + dispatch.mods.captured.len();
        let profile = &self.plan.profile;
        if !is_cpu(profile) || bound >= profile.limits.storage_buffers as usize {
            dispatch.mod_files.push("schedule/static");
            return;
        }
        let none = Extents::none();
        let tiles = dispatch.workgroups.clone();
        let left = number(LLVMPIPE_LOOP_TURNS - 1 - at_worst.idle);
        let at_most = left.floor_div(&(at_worst.taken.clone() + Dim::one()), &none);
        let at_most = at_most.maximum(&Dim::one(), &none);
        let of_a_tile = Turns {
            taken: dispatch.turns.clone(),
            idle: at_worst.idle,
        };
        let few = number(profile.busy_workgroups.max(WORKGROUPS));
        let few = tiles.minimum(&few, &none);
        let enough = (tiles.clone() * Dim::from(SPARE)).ceil_div(&at_most, &none);
        let (counters, counter) = self.counter();
        dispatch.mod_files.push("schedule/dynamic");
        dispatch.counters = Some(counters);
        dispatch
            .tile
            .push_str("; workgroups take tiles as they come");
        dispatch.turns = of_a_tile.repeated(&at_most.minimum(&tiles, &none)).taken;
        dispatch.workgroups = enough.maximum(&few, &none);
        let words = [
            ("tile_count", tiles),
            ("tiles_at_most", at_most),
            ("counter", counter),
        ];
        dispatch.mods.fields.extend(words.map(|(name, dim)| Field {
            name: name.to_owned(),
            dim,
            signed: false,
        }));
    }

    /// The plan's counters, and the number of a new one.
    fn counter(&mut self) -> (BufferId, Dim) {
        let known = self.plan.counters().next().map(|(id, _)| id);
        let id = known.unwrap_or_else(|| {
            let none = vec![Dim::zero()];
            let counters = Buffer::new("counters", BufferKind::Counters, DType::U32, none);
            self.plan.add_buffer(counters)
        });
        let count = &mut self.plan.buffers[id.index()].shape[0];
        let number = count.clone();
        *count = number.clone() + Dim::one();
        (id, number)
    }
}
