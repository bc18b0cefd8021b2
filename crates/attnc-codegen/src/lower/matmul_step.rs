//! The steps that compute a matrix product: kernels chosen, seams filled.
//!
//! On entry: a product as `Problem` sees it. On exit: one step for it, or one for few rows and one for more.

use super::kernel::Dispatch;
use super::matmul::Problem;
use super::matmul_kernel::{FEW, MatmulNeeds, WorthImages};
use super::pointwise::operations;
use super::turns::of_matmul;
use super::{Lowerer, constant, div_ceil, images, label};
use crate::Stored;
use crate::choice::KernelShape;
use crate::micro::{Access, Division, LeftLoad, MatmulTile, RightLoad};
use crate::mods::Printed;
use crate::params;
use attnc_ir::{Diagnostic, Dim, Extents, Op, ValueId, layout};
use attnc_plan::Panels;

impl Lowerer<'_> {
    /// A matrix product and its epilogue.
    pub(super) fn matmul(&mut self, value: ValueId) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        if !node.ty.dtype.is_float() {
            return Err(Diagnostic::error(
                "unsupported-dtype",
                format!(
                    "`matmul` stores floats, its epilogue gives {}",
                    node.ty.dtype
                ),
            ));
        }
        let problem = Problem::of(self.graph, value)?;
        let tile = problem.tile();
        let (problem, tile) = match self.panels(value, &problem) {
            Some(Panels { columns, .. }) => {
                let b = RightLoad::Panels { columns };
                (problem.with_panels(columns), MatmulTile { b, ..tile })
            }
            None => (problem, tile),
        };
        if tile.c == Access::Scalar && self.stored(value).is_packed() {
            return self.through_f32(value, None, |lowerer| {
                lowerer.matmul_steps(value, &problem, tile)
            });
        }
        self.matmul_steps(value, &problem, tile)
    }

    /// One step, or in a model that decodes on a device where it matters one for few rows and one for more, of which the
    /// lengths of a run leave one empty.
    fn matmul_steps(
        &mut self,
        value: ValueId,
        problem: &Problem,
        tile: MatmulTile,
    ) -> Result<(), Diagnostic> {
        let operands = self.graph.ty(self.graph.node(value).operands()[0]).dtype;
        let result = self.buffer(value)?;
        let profile = &self.plan.profile;
        let any = MatmulNeeds {
            tile: MatmulTile {
                operands: Stored::of(operands, profile),
                result: self.stored_in(result),
                ..tile
            },
            b_by_eights: problem.b_by_eights(),
            c_by_eights: problem.c_by_eights(),
            images: self.worth_images(value, problem, Stored::of(operands, profile)),
            batches: constant(&problem.batches()),
            m: constant(problem.rows()),
            n: constant(&problem.n),
            k: problem.k.clone(),
        };
        let few = MatmulNeeds {
            m: Some(FEW),
            ..any.clone()
        };
        let splits = |needs: &MatmulNeeds| {
            let open = self.choices.open(needs.candidates(profile));
            open.first()
                .is_some_and(|(_, c)| c.shape == KernelShape::Lanes)
        };
        let differs = any.m.is_none() && self.decodes() && splits(&few) && !splits(&any);
        if !differs {
            return self.matmul_step(value, problem, &any, &Dim::one());
        }
        let none = Extents::none();
        let more = problem
            .rows()
            .floor_div(&Dim::from(i64::from(FEW) + 1), &none);
        let more = more.minimum(&Dim::one(), &none);
        self.matmul_step(value, problem, &few, &(Dim::one() - more.clone()))?;
        self.matmul_step(value, problem, &any, &more)
    }

    /// Which operands are read through images. Constants are, where they are in panels, since then nothing else reads
    /// them; other operands are copied, if as many read the copy as pays.
    fn worth_images(&self, value: ValueId, problem: &Problem, operands: Stored) -> WorthImages {
        let profile = &self.plan.profile;
        let suit = images::suit(profile, operands);
        let at_least = |dim: &Dim, least: u32| constant(dim).is_none_or(|n| n >= least);
        let is_computed = |operand: usize| {
            let operand = self.graph.node(value).operands()[operand];
            let base = layout::source_index(self.graph, operand).0;
            !matches!(self.graph.node(base).op, Op::Constant(_))
        };
        WorthImages {
            a: suit && is_computed(0) && at_least(&problem.n, images::WORTH_COLUMNS),
            b: suit && is_computed(1) && at_least(problem.rows(), images::WORTH_ROWS),
            panels: suit && images::hold(profile, &(problem.k.clone() * problem.n.clone())),
        }
    }

    /// Whether some attention has queries beside a cache of keys, so that few rows at a time are to be expected.
    fn decodes(&self) -> bool {
        let nodes = self.graph.topo_order();
        let mut attentions = nodes
            .iter()
            .map(|&id| self.graph.node(id))
            .filter(|node| matches!(node.op, Op::Attention(_)));
        attentions.any(|node| {
            let [q, k] = [0, 1].map(|n| &self.graph.ty(node.operands()[n]).shape);
            q.iter().rev().nth(1) != k.iter().rev().nth(1)
        })
    }

    /// The step for what `needs` says; `when` is 1 in runs that it is for, else 0.
    fn matmul_step(
        &mut self,
        value: ValueId,
        problem: &Problem,
        needs: &MatmulNeeds,
        when: &Dim,
    ) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        let operands = self.graph.ty(node.operands()[0]).dtype;
        let result = self.buffer(value)?;
        let types = label::types(operands, self.plan.buffer(result).dtype);
        let candidates = needs.candidates(&self.plan.profile);
        let (tile, chosen) = self.choose(problem.text(&types, needs), candidates);
        let (epilogue, mods) = self.matmul_mods(value, problem, &tile)?;
        let tile = MatmulTile { epilogue, ..tile };
        let micro = tile.print().map_err(|error| {
            let message = format!("no register tile for this matmul: {error}");
            Diagnostic::error("no-tile", message)
        })?;
        let (a, b) = (
            self.operand_buffer(value, 0)?,
            self.operand_buffer(value, 1)?,
        );
        let label = node.epilogue.as_ref();
        let label = label.map(|e| label::epilogue(e, node.ty.rank()));
        let size = tile.invocations().unwrap_or(self.workgroup_size);
        let mut params = params::print(&[], size);
        let mut mod_files = Vec::new();
        if let Division::Lanes { .. } = tile.division
            && let Some(lanes) = needs.lanes(&self.plan.profile)
        {
            params = params::print(&[("lane_elem", "vec4<f32>")], size);
            params.push_str(&lanes.params());
            mod_files.push(lanes.file);
        }
        let turns = of_matmul(&tile, &problem.k);
        let mut dispatch = Dispatch {
            kernel: tile.kernel(),
            key: key(&types, &tile, &chosen.tile, label.as_deref()),
            params,
            micro: Some(micro),
            combine: None,
            store: None,
            op: None,
            mod_files,
            mods,
            tile: format!("{}; {}", words(&tile), chosen.why),
            uniforms: problem.uniforms(),
            operands: vec![a, b, result],
            counters: None,
            images: tile.images(),
            workgroups: workgroups(problem, &tile, size) * when.clone(),
            flops: problem.flops(node.epilogue.as_ref().map_or(0, operations)) * when.clone(),
            turns: turns.taken.clone(),
        };
        if let Division::Subgroup { .. } = tile.division {
            self.schedule(&mut dispatch, &turns);
        }
        self.dispatch(value, dispatch)
    }

    /// What the kernel calls: by vectors where C is written so and what is computed on it has a form for four.
    fn matmul_mods(
        &self,
        value: ValueId,
        problem: &Problem,
        tile: &MatmulTile,
    ) -> Result<(Access, Printed), Diagnostic> {
        let stored = |value| self.stored(value);
        let mods = |of| problem.mods(self.graph, value, &stored, tile.kernel(), of);
        if tile.c == Access::Vec4
            && let Ok(vectors) = mods(Access::Vec4)
        {
            return Ok((Access::Vec4, vectors));
        }
        Ok((Access::Scalar, mods(Access::Scalar)?))
    }

    /// The buffer that an operand is a view of.
    pub(super) fn operand_buffer(
        &mut self,
        value: ValueId,
        operand: usize,
    ) -> Result<attnc_plan::BufferId, Diagnostic> {
        let operand = self.graph.node(value).operands()[operand];
        self.buffer(layout::source_index(self.graph, operand).0)
    }
}

/// Workgroups that cover the result.
fn workgroups(problem: &Problem, tile: &MatmulTile, size: u32) -> Dim {
    match tile.division {
        Division::Rows => div_ceil(&problem.tiles(tile.rows, tile.columns), size),
        Division::Subgroup { lanes } => problem.tiles(tile.rows, tile.columns * lanes),
        Division::Lanes { .. } | Division::Tiled(_) | Division::Matrix { .. } => {
            problem.tiles(tile.block_rows(), tile.block_columns())
        }
    }
}

/// Letters for loads that are not by vectors, and for those from images.
fn loads(tile: &MatmulTile) -> String {
    let a = match tile.a {
        LeftLoad::KVec4 => "",
        LeftLoad::Scalar => "as",
        LeftLoad::Element => "ae",
    };
    let b = match tile.b {
        RightLoad::NVec4 | RightLoad::NVec8 => "",
        RightLoad::KVec4 => "bk",
        RightLoad::Panels { .. } => "bp",
        RightLoad::Scalar => "bs",
        RightLoad::Element => "be",
    };
    let c = match tile.c {
        Access::Vec4 => "",
        Access::Scalar => "cs",
    };
    let of_image = |operand: &str, how: &str, image: bool| match (image, how) {
        (false, how) => how.to_owned(),
        (true, "") => format!("{operand}i"),
        (true, how) => format!("{how}i"),
    };
    let a = of_image("a", a, tile.a_image);
    let b = of_image("b", b, tile.b_image);
    format!("{a}{b}{c}")
}

/// What a tile takes of a device, in words.
fn words(tile: &MatmulTile) -> String {
    let MatmulTile { rows, columns, .. } = tile;
    let held = match tile.division {
        Division::Matrix { size, .. } => {
            format!("{rows} rows x {columns} columns a subgroup in matrices of {size} x {size}")
        }
        _ => format!(
            "{rows} rows x {columns} columns in registers, {} B a lane",
            4 * rows * columns
        ),
    };
    let images = match (tile.a_image, tile.b_image) {
        (true, true) => ", A and B from images",
        (true, false) => ", A from an image",
        (false, true) => ", B from an image",
        (false, false) => "",
    };
    match tile.staged() {
        None => format!("{held}{images}; no workgroup memory"),
        Some(staged) => format!(
            "{} x {} a workgroup, {held}{images}; {} steps of k in {} B of workgroup memory",
            tile.block_rows(),
            tile.block_columns(),
            staged.steps,
            tile.workgroup_bytes()
        ),
    }
}

/// `matmul_rows.f32.r4c2.bias_gelu`.
fn key(types: &str, tile: &MatmulTile, name: &str, epilogue: Option<&str>) -> String {
    let mut key = format!("{}.{types}.{name}{}", tile.kernel(), loads(tile));
    if let Some(epilogue) = epilogue {
        key = format!("{key}.{epilogue}");
    }
    key
}
