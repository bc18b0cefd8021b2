//! Benches of attnc.
