// Gaussian error linear unit, x * Phi(x). Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2.

import package::lib::erf::{erf};
import package::lib::stable_tanh::{stable_tanh};

fn gelu(x: f32) -> f32 {
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
}

fn gelu_tanh(x: f32) -> f32 {
    return 0.5 * x * (1.0 + stable_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
