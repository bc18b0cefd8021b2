//! Types and expressions against the operands.

use crate::scalar::Scalar;
use crate::{Attention, DType, Diagnostic, Node, Op, TensorType, infer};

pub(super) fn check_type(node: &Node, operands: &[&TensorType], out: &mut Vec<Diagnostic>) {
    let most = node.op.arity().1;
    if operands.len() > most && node.op.takes_epilogue() && node.epilogue.is_none() {
        out.push(Diagnostic::error(
            "operand-count",
            format!(
                "{} takes {most} operands, found {} and no epilogue",
                node.op.name(),
                operands.len()
            ),
        ));
    }
    if node.epilogue.is_some() && !node.op.takes_epilogue() {
        out.push(
            Diagnostic::error(
                "stray-epilogue",
                format!("{} takes no epilogue", node.op.name()),
            )
            .note("put the expression into a map behind it"),
        );
        return;
    }
    let inferred = match infer::result_type(&node.op, operands) {
        Ok(ty) => ty,
        Err(diagnostic) => return out.push(diagnostic),
    };
    // Where an epilogue gives the value, f32 may be stored as any floating-point type.
    let widens = node.epilogue.is_some();
    if let Some(epilogue) = &node.epilogue {
        let (shape, dtype) = (&inferred.shape, node.ty.dtype);
        out.extend(infer::check_expr("epilogue", epilogue, shape, operands, dtype).err());
    }
    if inferred.shape != node.ty.shape || !(widens || inferred.dtype == node.ty.dtype) {
        let expected = TensorType {
            dtype: if widens {
                node.ty.dtype
            } else {
                inferred.dtype
            },
            shape: inferred.shape,
        };
        out.push(Diagnostic::error(
            "type-mismatch",
            format!(
                "{} gives {expected}, but the value has type {}",
                node.op.name(),
                node.ty
            ),
        ));
    }
    check_loads(node, operands, out);
}

/// What [`infer::check_expr`] leaves open: types of loads and their indices, and where an argument is.
fn check_loads(node: &Node, operands: &[&TensorType], out: &mut Vec<Diagnostic>) {
    if let Op::Attention(a) = &node.op {
        for (name, expr) in a.functions() {
            if Attention::argument(name).is_none() && expr.uses_arg() {
                out.push(Diagnostic::error(
                    "bad-expression",
                    format!("{name} uses the score, but depends on indices and loads only"),
                ));
            }
        }
    }
    for expr in node.expressions() {
        for (id, scalar) in expr.ids().zip(expr.nodes()) {
            let Scalar::Load { operand, index } = scalar else {
                continue;
            };
            let Some(ty) = operands.get(*operand) else {
                continue;
            };
            let wanted = if ty.dtype.is_float() {
                DType::F32
            } else {
                ty.dtype
            };
            if expr.dtype(id) != wanted {
                out.push(Diagnostic::error(
                    "bad-expression",
                    format!(
                        "a load of {} from operand {operand}, which is {ty}",
                        expr.dtype(id)
                    ),
                ));
            }
            if let Some(i) = index.iter().find(|i| expr.dtype(**i) != DType::I32) {
                out.push(Diagnostic::error(
                    "bad-expression",
                    format!(
                        "an index of type {} into operand {operand}; expected i32",
                        expr.dtype(*i)
                    ),
                ));
            }
        }
    }
}
