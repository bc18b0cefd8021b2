//! Checking the tensors a host gives against the inputs of a plan. What fits costs no allocation.

use crate::Error;
use crate::session::HostTensorRef;
use attnc_plan::{Plan, Port};

/// Tensors with names, however the host keeps them.
pub trait Inputs {
    /// How many there are.
    fn len(&self) -> usize;

    /// Name and tensor number `n`, below [`Inputs::len`].
    fn at(&self, n: usize) -> (&str, HostTensorRef<'_>);

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<const N: usize> Inputs for [(&str, HostTensorRef<'_>); N] {
    fn len(&self) -> usize {
        N
    }

    fn at(&self, n: usize) -> (&str, HostTensorRef<'_>) {
        self[n]
    }
}

impl Inputs for &[(&str, HostTensorRef<'_>)] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn at(&self, n: usize) -> (&str, HostTensorRef<'_>) {
        self[n]
    }
}

/// Names and tensors in their order.
pub(crate) fn each(inputs: &dyn Inputs) -> impl Iterator<Item = (&str, HostTensorRef<'_>)> {
    (0..inputs.len()).map(|n| inputs.at(n))
}

/// The tensor of that name.
pub(crate) fn find<'i>(inputs: &'i dyn Inputs, name: &str) -> Option<HostTensorRef<'i>> {
    let mut named = each(inputs);
    named.find(|(n, _)| *n == name).map(|(_, tensor)| tensor)
}

/// Whether the inputs fit the plan, their shapes aside, or everything that is wrong with them.
pub(crate) fn check(plan: &Plan, inputs: &dyn Inputs) -> Result<(), Error> {
    let mut wrong = Vec::new();
    for (at, (name, tensor)) in each(inputs).enumerate() {
        if plan.input(name).is_none() {
            wrong.push(unknown(plan, name));
        } else if each(inputs).take(at).any(|(earlier, _)| earlier == name) {
            wrong.push(format!("input `{name}` is given twice"));
        }
        if byte_len(&tensor) != Some(tensor.bytes.len()) {
            let (shape, dtype, found) = (tensor.shape, tensor.dtype, tensor.bytes.len());
            wrong.push(format!(
                "input `{name}`: {found} bytes are not a {dtype} tensor of shape {shape:?}"
            ));
        }
    }
    for port in &plan.inputs {
        match find(inputs, &port.name) {
            None => wrong.push(format!(
                "input `{}` of type {} is missing",
                port.name,
                port.type_text()
            )),
            Some(tensor) if tensor.dtype != port.dtype => {
                wrong.push(of_another_type(port, &tensor));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::Inputs(wrong))
    }
}

fn byte_len(tensor: &HostTensorRef<'_>) -> Option<usize> {
    let mut shape = tensor.shape.iter();
    let elements = shape.try_fold(1usize, |n, &d| n.checked_mul(d))?;
    elements.checked_mul(tensor.dtype.bytes())
}

fn unknown(plan: &Plan, name: &str) -> String {
    let known: Vec<_> = plan
        .inputs
        .iter()
        .map(|p| format!("`{}`", p.name))
        .collect();
    format!("no input is named `{name}`; there are {}", known.join(", "))
}

fn of_another_type(port: &Port, tensor: &HostTensorRef<'_>) -> String {
    let declared = port.source_dtype.as_ref();
    let said = declared.map(|s| format!(" (`{s}` in the model)"));
    let (name, want, have) = (&port.name, port.dtype, tensor.dtype);
    format!(
        "input `{name}`: expected {want}{}, found {have}",
        said.unwrap_or_default()
    )
}
