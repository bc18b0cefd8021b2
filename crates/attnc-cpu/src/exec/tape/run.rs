//! Running a tape.

use super::{CHUNK, Code, Instr, Load, Tape, lanes};
use crate::exec::scratch::Lanes;
use crate::exec::view::View;
use crate::index::{Axes, Odometer};
use crate::lazy::OutOfRange;
use attnc_ir::DType;
use rayon::prelude::*;
use smallvec::{SmallVec, smallvec};

/// Elements a thread takes at a time: enough to be worth handing out, few enough to share evenly.
const GRAIN: usize = 16 * CHUNK;

/// The registers of one thread.
#[derive(Debug, Clone)]
pub(crate) struct Scratch {
    registers: SmallVec<[Lanes; 16]>,
    /// Whether an index from data was out of range, if only in a branch that is not chosen.
    suspect: bool,
}

impl Scratch {
    /// Registers for a tape.
    pub(crate) fn new(tape: &Tape) -> Self {
        let mut registers: SmallVec<[Lanes; 16]> =
            (0..tape.registers).map(|_| Lanes::take()).collect();
        for register in &mut registers {
            register.resize(CHUNK, 0);
        }
        for &(register, lane) in &tape.literals {
            registers[register].fill(lane);
        }
        Self {
            registers,
            suspect: false,
        }
    }
}

impl Tape {
    /// Every element of `out` by the expression; `out` has the extents in row-major order.
    pub(crate) fn fill(&self, operands: &[View<'_>], out: &mut [u32]) -> Result<(), OutOfRange> {
        self.run(operands, out, false)
    }

    /// Every element of `data` through the expression, as its argument.
    pub(crate) fn transform(
        &self,
        operands: &[View<'_>],
        data: &mut [u32],
    ) -> Result<(), OutOfRange> {
        self.run(operands, data, true)
    }

    fn run(&self, operands: &[View<'_>], out: &mut [u32], arg: bool) -> Result<(), OutOfRange> {
        if out.len() <= GRAIN {
            return self.piece(&mut Scratch::new(self), operands, 0, out, arg);
        }
        out.par_chunks_mut(GRAIN).enumerate().try_for_each_init(
            || Scratch::new(self),
            |scratch, (n, piece)| self.piece(scratch, operands, n * GRAIN, piece, arg),
        )
    }

    /// The elements from row-major position `first` on.
    fn piece(
        &self,
        scratch: &mut Scratch,
        operands: &[View<'_>],
        first: usize,
        out: &mut [u32],
        arg: bool,
    ) -> Result<(), OutOfRange> {
        let inner = self.inner();
        if out.is_empty() {
            return Ok(());
        }
        let outer = &self.extents[..self.extents.len().saturating_sub(1)];
        let mut at = Odometer::at(outer, first / inner);
        let mut start = first % inner;
        let mut index: Axes<i64> = smallvec![0; self.extents.len()];
        let mut done = 0;
        while done < out.len() {
            let len = CHUNK.min(inner - start).min(out.len() - done);
            for (i, &o) in index.iter_mut().zip(at.index()) {
                *i = to_i64(o);
            }
            if let Some(i) = index.last_mut() {
                *i = to_i64(start);
            }
            let chunk = &mut out[done..done + len];
            self.chunk(scratch, operands, &index, len, arg.then_some(&*chunk));
            if std::mem::take(&mut scratch.suspect) {
                self.check(operands, first + done, len, arg.then_some(&*chunk))?;
            }
            self.result(scratch, chunk);
            done += len;
            start += len;
            if start == inner {
                start = 0;
                at.step();
            }
        }
        Ok(())
    }

    /// Evaluates `len` neighbours along the innermost axis, the first of them at `index`.
    ///
    /// For tapes whose axes are not merged, the index is that of the expression.
    pub(crate) fn chunk(
        &self,
        scratch: &mut Scratch,
        operands: &[View<'_>],
        index: &[i64],
        len: usize,
        arg: Option<&[u32]>,
    ) {
        for instr in &self.code {
            let len = if instr.varies { len } else { 1 };
            let mut dst = std::mem::take(&mut scratch.registers[instr.dst]);
            instr.run(&mut dst[..len], scratch, operands, index, arg);
            scratch.registers[instr.dst] = dst;
        }
    }

    /// Copies the value of the last [`Tape::chunk`].
    pub(crate) fn result(&self, scratch: &Scratch, out: &mut [u32]) {
        let (register, varies) = self.result;
        let value = &scratch.registers[register];
        if varies {
            out.copy_from_slice(&value[..out.len()]);
        } else {
            out.fill(value[0]);
        }
    }

    /// As [`Tape::chunk`] and [`Tape::result`] for any length, and an index from data out of range is an error.
    pub(crate) fn row(
        &self,
        scratch: &mut Scratch,
        operands: &[View<'_>],
        index: &[usize],
        data: &mut [u32],
        arg: bool,
    ) -> Result<(), OutOfRange> {
        let mut at: Axes<i64> = index.iter().map(|&i| to_i64(i)).collect();
        for chunk in data.chunks_mut(CHUNK) {
            let len = chunk.len();
            self.chunk(scratch, operands, &at, len, arg.then_some(&*chunk));
            if std::mem::take(&mut scratch.suspect) {
                self.check_at(operands, &at, len, arg.then_some(&*chunk))?;
            }
            self.result(scratch, chunk);
            if let Some(i) = at.last_mut() {
                *i += to_i64(len);
            }
        }
        Ok(())
    }

    /// Evaluates literally, to find an index out of range that is really looked up.
    fn check(
        &self,
        operands: &[View<'_>],
        first: usize,
        len: usize,
        arg: Option<&[u32]>,
    ) -> Result<(), OutOfRange> {
        let mut at = Odometer::at(&self.source_extents, first);
        for n in 0..len {
            let index: Axes<i64> = at.index().iter().map(|&i| to_i64(i)).collect();
            self.check_one(operands, &index, arg.map(|a| a[n]))?;
            at.step();
        }
        Ok(())
    }

    fn check_at(
        &self,
        operands: &[View<'_>],
        first: &[i64],
        len: usize,
        arg: Option<&[u32]>,
    ) -> Result<(), OutOfRange> {
        let mut index = first.to_vec();
        for n in 0..len {
            self.check_one(operands, &index, arg.map(|a| a[n]))?;
            if let Some(i) = index.last_mut() {
                *i += 1;
            }
        }
        Ok(())
    }

    fn check_one(
        &self,
        operands: &[View<'_>],
        index: &[i64],
        arg: Option<u32>,
    ) -> Result<(), OutOfRange> {
        let arg = arg.map_or(0.0, |a| f64::from(f32::from_bits(a)));
        self.literal()
            .eval(index, arg, &|operand, dtype, index| {
                element(&operands[operand], dtype, index)
            })
            .map(|_| ())
    }
}

fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The element of an operand at an index that may be out of range.
fn element(view: &View<'_>, dtype: DType, index: &[i64]) -> Result<f64, OutOfRange> {
    let mut at = Vec::with_capacity(index.len());
    for (&index, &size) in index.iter().zip(&view.layout.shape) {
        let i = usize::try_from(index).ok().filter(|&i| i < size);
        at.push(i.ok_or(OutOfRange { index, size })?);
    }
    let lane = view.lanes[view.layout.position(&at)];
    Ok(match dtype {
        DType::I32 => f64::from(lane.cast_signed()),
        DType::U32 => f64::from(lane),
        DType::Bool => f64::from(u8::from(lane != 0)),
        DType::F32 | DType::F16 | DType::BF16 => f64::from(f32::from_bits(lane)),
    })
}

impl Instr {
    fn run(
        &self,
        dst: &mut [u32],
        scratch: &mut Scratch,
        operands: &[View<'_>],
        index: &[i64],
        arg: Option<&[u32]>,
    ) {
        let len = dst.len();
        let reg = |n: usize| &scratch.registers[n][..len];
        match &self.code {
            Code::Arg => dst.copy_from_slice(arg.expect("an expression with an argument gets one")),
            Code::Ramp(affine) => {
                let slope = affine.slopes.last().copied().unwrap_or(0);
                lanes::ramp(dst, affine.at(index), slope);
            }
            Code::Poly(poly) => {
                let mut index: Axes<i64> = index.into();
                for x in dst {
                    *x = wrap(poly.eval(&index));
                    if let Some(i) = index.last_mut() {
                        *i += 1;
                    }
                }
            }
            Code::Load(load) => load.run(dst, scratch, &operands[load.operand], index),
            Code::Splat(a) => dst.fill(scratch.registers[*a][0]),
            Code::Unary(op, dtype, a) => lanes::unary(*op, *dtype, dst, reg(*a)),
            Code::Binary(op, dtype, [a, b]) => lanes::binary(*op, *dtype, dst, reg(*a), reg(*b)),
            Code::Compare(op, dtype, [a, b]) => lanes::compare(*op, *dtype, dst, reg(*a), reg(*b)),
            Code::Select([c, a, b]) => lanes::select(dst, reg(*c), reg(*a), reg(*b)),
            Code::Cast(from, to, a) => lanes::cast(*from, *to, dst, reg(*a)),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "wrapping is what integers of 32 bits do"
)]
fn wrap(x: i64) -> u32 {
    x as u32
}

impl Load {
    fn run(&self, dst: &mut [u32], scratch: &mut Scratch, view: &View<'_>, index: &[i64]) {
        let mut base = self.affine.at(index);
        let slope = self.affine.slopes.last().copied().unwrap_or(0);
        let mut varying = false;
        for part in &self.parts {
            varying |= part.varies;
            let register = &scratch.registers[part.register];
            if let Some(size) = part.checked {
                let read = if part.varies { dst.len() } else { 1 };
                // Negative indices are huge as unsigned numbers.
                scratch.suspect |= register[..read].iter().any(|&x| x as usize >= size);
            }
            if !part.varies {
                base = base
                    .wrapping_add(i64::from(register[0].cast_signed()).wrapping_mul(part.stride));
            }
        }
        if view.lanes.is_empty() {
            // Nothing is there, so only a branch that is not chosen can ask.
            dst.fill(0);
        } else if varying {
            self.gather(dst, scratch, view, base, slope);
        } else {
            strided(dst, view.lanes, base, slope);
        }
        if self.dtype == DType::Bool {
            dst.iter_mut().for_each(|x| *x = u32::from(*x != 0));
        }
    }

    /// Positions that differ from lane to lane.
    fn gather(&self, dst: &mut [u32], scratch: &Scratch, view: &View<'_>, base: i64, slope: i64) {
        let last = view.lanes.len() - 1;
        let varying: SmallVec<[_; 4]> = self
            .parts
            .iter()
            .filter(|p| p.varies)
            .map(|p| (&scratch.registers[p.register], p.stride))
            .collect();
        let mut start = base;
        for (n, x) in dst.iter_mut().enumerate() {
            let at = varying.iter().fold(start, |at, (register, stride)| {
                at.wrapping_add(i64::from(register[n].cast_signed()).wrapping_mul(*stride))
            });
            *x = view.lanes[clamp(at, last)];
            start = start.wrapping_add(slope);
        }
    }
}

/// The nearest position that exists.
fn clamp(at: i64, last: usize) -> usize {
    usize::try_from(at.max(0)).map_or(last, |at| at.min(last))
}

/// Elements `base, base + slope, …`.
fn strided(dst: &mut [u32], data: &[u32], base: i64, slope: i64) {
    let last = base.wrapping_add(slope.wrapping_mul(to_i64(dst.len()) - 1));
    let inside = |at: i64| usize::try_from(at).ok().filter(|&at| at < data.len());
    match (inside(base), inside(last), slope) {
        (Some(first), Some(_), 0) => dst.fill(data[first]),
        (Some(first), Some(_), 1) => dst.copy_from_slice(&data[first..first + dst.len()]),
        _ => {
            let mut at = base;
            for x in dst {
                *x = data[clamp(at, data.len() - 1)];
                at = at.wrapping_add(slope);
            }
        }
    }
}
