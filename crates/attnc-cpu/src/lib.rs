//! CPU executor and f64 oracle of attnc graphs.
