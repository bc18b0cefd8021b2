//! Passes of attnc: fusion, with a reason for every refusal.
