//! Graph IR of attnc: types, symbolic shapes, scalar expressions, builder, verifier, text form.
