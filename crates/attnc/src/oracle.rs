//! The oracle: the imported graph, before any pass, in f64.
//!
//! What it gives is the literal meaning of the model; every other way to run it is held against this.

use crate::backend::{cpu_dims, cpu_named};
use crate::derived;
use crate::inputs::{self, BoundInputs};
use crate::plan::DimValues;
use crate::{Error, HostDType, HostTensor, Model, Tensors, cpu};

/// Runs a model in f64. Float outputs are `float64`, not rounded to the type the model declares.
///
/// # Errors
/// Inputs that do not fit, indices out of range, more memory than there is.
pub fn run(model: &Model, given: &Tensors, dims: &DimValues) -> Result<Tensors, Error> {
    let mut bound = inputs::bind(&model.inputs, &model.rules, given, dims)?;
    derived::complete(&model.derived, &model.rules, &mut bound)?;
    run_bound(model, &bound)
}

/// As [`run`], with inputs that are checked already.
///
/// # Errors
/// As [`run`].
pub fn run_bound(model: &Model, bound: &BoundInputs) -> Result<Tensors, Error> {
    let names = derived::names(&model.graph);
    let tensors = cpu_named(&names, &bound.tensors)?;
    let outputs = cpu::interp::run(&model.graph, &cpu_dims(&bound.dims), &tensors)?;
    let tensor = |(port, (_, output)): (&crate::Port, (String, cpu::Tensor))| {
        let dtype = if port.dtype.is_float() {
            HostDType::F64
        } else {
            port.host_dtype()
        };
        let wide = HostTensor::new(output.shape().to_vec(), &output.to_f64());
        let wide = wide.expect("a tensor has the elements of its shape");
        (port.name.clone(), wide.cast(dtype))
    };
    Ok(model.outputs.iter().zip(outputs).map(tensor).collect())
}
