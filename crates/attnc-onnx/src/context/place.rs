//! Values that were known only until now, placed in the graph: constants, counts, lengths as nodes.
//!
//! On entry: any value. On exit: its node, the same one each time.

use super::{Context, MAX_FOLDED, int64_range};
use crate::error::OpResult;
use crate::eval::Elems;
use crate::value::{self, Value};
use attnc_ir::{DType, Dim, Op, TensorData, TensorType, ValueId};

impl Context {
    /// The graph value: placed there now, if it was known only until now.
    pub(crate) fn place(&mut self, value: &Value) -> OpResult<ValueId> {
        match value {
            Value::Graph(id) => Ok(*id),
            Value::Const(data) => Ok(match data.placed.get() {
                Some(id) => id,
                None => {
                    let id = self.place_constant(&data.known, data.name.get());
                    data.placed.set(Some(id));
                    id
                }
            }),
            Value::Ints(ints) => match ints.placed.get() {
                Some(id) => Ok(id),
                None => {
                    let id = self.place_ints(&ints.known, ints.name.get())?;
                    ints.placed.set(Some(id));
                    Ok(id)
                }
            },
        }
    }

    fn place_constant(&mut self, data: &TensorData, name: Option<&String>) -> ValueId {
        if data.dtype == DType::I32
            && (2..=MAX_FOLDED).contains(&data.len())
            && let Some(numbers) = Elems::of(data)
            && let Some(id) = self.place_iota(&to_dims(&numbers), name)
        {
            return id;
        }
        match name {
            // A number is a literal, not a weight.
            Some(name) if data.len() > 1 => self.graph.add_constant(data.clone().named(name)),
            Some(name) => {
                let id = self.graph.add_constant(data.clone());
                self.graph.rename(id, name);
                id
            }
            None => self.graph.add_constant(data.clone()),
        }
    }

    fn place_iota(&mut self, ints: &Elems<Dim>, name: Option<&String>) -> Option<ValueId> {
        let (axis, start, step) = value::as_iota(ints)?;
        let ty = ints.ty();
        let shape = ty.shape.clone();
        let op = Op::Iota {
            shape,
            axis,
            start,
            step,
        };
        Some(self.insert(op, &[], ty, name.map(String::as_str)))
    }

    fn place_ints(&mut self, ints: &Elems<Dim>, name: Option<&String>) -> OpResult<ValueId> {
        check_i32(ints, name)?;
        if let Some(id) = self.place_iota(ints, name) {
            return Ok(id);
        }
        if let Some(numbers) = ints.numbers() {
            return Ok(self.place_constant(&numbers.to_constant(), name));
        }
        let mut parts = Vec::new();
        for dim in &ints.data {
            let length = TensorType::scalar(DType::I32);
            let id = self.insert(Op::Length(dim.clone()), &[], length, None);
            parts.push(self.in_dtype(id, ints.dtype)?);
        }
        let id = if ints.shape.is_empty() {
            parts[0]
        } else {
            let one = Op::Reshape(if parts.len() == 1 {
                ints.ty().shape
            } else {
                vec![Dim::one()]
            });
            let parts = parts
                .into_iter()
                .map(|id| self.add(one.clone(), &[id]))
                .collect::<OpResult<Vec<_>>>()?;
            match parts.as_slice() {
                [part] => *part,
                _ => {
                    let list = self.add(Op::Concat { axis: 0 }, &parts)?;
                    self.add(Op::Reshape(ints.ty().shape), &[list])?
                }
            }
        };
        if let Some(name) = name {
            self.graph.rename(id, name);
        }
        Ok(id)
    }

    fn in_dtype(&mut self, id: ValueId, dtype: DType) -> OpResult<ValueId> {
        if self.graph.ty(id).dtype == dtype {
            return Ok(id);
        }
        self.add(Op::Cast(dtype), &[id])
    }
}

fn to_dims(numbers: &Elems<f64>) -> Elems<Dim> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "elements of an i32 constant"
    )]
    let data = numbers.data.iter().map(|&v| Dim::from(v as i64)).collect();
    Elems {
        dtype: numbers.dtype,
        shape: numbers.shape.clone(),
        data,
    }
}

fn check_i32(ints: &Elems<Dim>, name: Option<&String>) -> OpResult<()> {
    let outside = ints
        .data
        .iter()
        .filter_map(Dim::as_const)
        .find(|&n| i32::try_from(n).is_err());
    match outside {
        None => Ok(()),
        Some(n) => Err(int64_range(name.map_or("a constant", String::as_str), n).into()),
    }
}
