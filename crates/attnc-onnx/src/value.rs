//! What is known about an ONNX value while importing.
//!
//! * [`Value::Graph`]: computed at run time.
//! * [`Value::Ints`]: small integers (or truth values) that are lengths or follow from them.
//! * [`Value::Const`]: known elements.
//!
//! The last two come into the graph only where something at run time reads them, so the arithmetic on
//! shapes that exporters write out leaves nothing behind.

use crate::eval::{Element, Elems};
use attnc_ir::{BinaryOp, DType, Dim, TensorData, ValueId};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// More integers than this are a table, not a shape.
pub(crate) const MAX_INTS: usize = 64;

/// Something that becomes a graph value when it is needed there.
#[derive(Debug)]
pub(crate) struct Lazy<T> {
    pub(crate) known: T,
    /// The ONNX name.
    pub(crate) name: OnceCell<String>,
    /// The graph value, once there is one.
    pub(crate) placed: Cell<Option<ValueId>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Graph(ValueId),
    Ints(Rc<Lazy<Elems<Dim>>>),
    Const(Rc<Lazy<TensorData>>),
}

fn lazy<T>(known: T) -> Rc<Lazy<T>> {
    Rc::new(Lazy {
        known,
        name: OnceCell::new(),
        placed: Cell::new(None),
    })
}

impl Value {
    pub(crate) fn ints(known: Elems<Dim>) -> Self {
        Self::Ints(lazy(known))
    }

    /// A list of lengths: the value of a `Shape` node.
    pub(crate) fn shape(dims: Vec<Dim>) -> Self {
        Self::ints(Elems::list(DType::I32, dims))
    }

    pub(crate) fn constant(data: TensorData) -> Self {
        Self::Const(lazy(data))
    }

    /// Names a value that has no name yet.
    pub(crate) fn set_name(&self, name: &str) {
        match self {
            Self::Graph(_) => {}
            Self::Ints(ints) => {
                ints.name.get_or_init(|| name.to_owned());
            }
            Self::Const(data) => {
                data.name.get_or_init(|| name.to_owned());
            }
        }
    }

    /// As small integers, if it is that.
    pub(crate) fn as_ints(&self) -> Option<Elems<Dim>> {
        match self {
            Self::Ints(ints) => Some(ints.known.clone()),
            Self::Const(data) if !data.known.dtype.is_float() && data.known.len() <= MAX_INTS => {
                let numbers = Elems::of(&data.known)?;
                Some(Elems {
                    dtype: numbers.dtype,
                    shape: numbers.shape,
                    data: numbers
                        .data
                        .iter()
                        .map(|&v| Dim::literal(v, data.known.dtype))
                        .collect::<Option<_>>()?,
                })
            }
            _ => None,
        }
    }

    /// As known numbers, if it is that and at most `most` of them.
    pub(crate) fn as_numbers(&self, most: usize) -> Option<Elems<f64>> {
        match self {
            Self::Ints(ints) => ints.known.numbers(),
            Self::Const(data) if data.known.len() <= most => Elems::of(&data.known),
            _ => None,
        }
    }

    /// The number that every element is, if that is known.
    pub(crate) fn as_splat(&self) -> Option<f64> {
        match self {
            Self::Const(data) => data.known.splat_f64(),
            Self::Ints(ints) => {
                let (first, rest) = ints.known.data.split_first()?;
                rest.iter()
                    .all(|d| d == first)
                    .then(|| f64::length(first))?
            }
            Self::Graph(_) => None,
        }
    }
}

/// Integers `start + i * step` along one axis `i`, the same along all others: an `iota`.
pub(crate) fn as_iota(ints: &Elems<Dim>) -> Option<(usize, Dim, Dim)> {
    if ints.dtype != DType::I32 {
        return None;
    }
    let mut long = (0..ints.shape.len()).filter(|&n| ints.shape[n] != 1);
    let axis = long.next().filter(|_| long.next().is_none())?;
    let (first, second) = (ints.data.first()?, ints.data.get(1)?);
    let step = Dim::binary(BinaryOp::Sub, second, first, DType::I32)?;
    let counts = ints
        .data
        .windows(2)
        .all(|w| w[0].clone() + step.clone() == w[1]);
    (counts && !step.is(0)).then(|| (axis, first.clone(), step))
}
