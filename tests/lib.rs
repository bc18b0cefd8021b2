//! Test harness of attnc.
