//! Memory that kernels borrow for a moment: kept by the thread that gives it back, so that a run like the one
//! before allocates none.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers a thread keeps; what is given back beyond that is freed.
const KEPT: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Vec<u32>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of lanes, whatever its length and contents.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lanes(Vec<u32>);

impl Lanes {
    /// A buffer that was given back, or an empty one.
    pub(crate) fn take() -> Self {
        Self(FREE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let lanes = std::mem::take(&mut self.0);
        if lanes.capacity() == 0 {
            return;
        }
        // Where the thread is ending there is nothing to keep it in.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(lanes);
            }
        });
    }
}

impl Deref for Lanes {
    type Target = Vec<u32>;
    fn deref(&self) -> &Vec<u32> {
        &self.0
    }
}

impl DerefMut for Lanes {
    fn deref_mut(&mut self) -> &mut Vec<u32> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_lent_again() {
        let mut lanes = Lanes::take();
        lanes.resize(100, 7);
        let at = lanes.as_ptr();
        drop(lanes);
        assert_eq!(Lanes::take().as_ptr(), at);
        drop(Lanes::default());
        assert_eq!(FREE.with_borrow(Vec::len), 1, "an empty one is not kept");
    }
}
