//! Which indices a kernel gives its functions, and which the expressions are written in.

use attnc_ir::{Dim, Extents};

/// How the numbers a kernel gives a function relate to the logical index of the expression.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexSpace {
    /// Extents of the logical index variables.
    pub(crate) logical: Vec<Dim>,
    /// The function's `u32` parameters that are indices, each with its extent.
    pub(crate) parameters: Vec<(&'static str, Dim)>,
    /// Each logical index as a polynomial over the parameters, parameter `n` being `Dim::index(n)`.
    pub(crate) index: Vec<Dim>,
    /// Whether the function computes four elements, in the order of the last axis that is covered. Which of
    /// them is `Dim::index(parameters.len())` in `index`: no parameter.
    pub(crate) vectors: bool,
}

impl IndexSpace {
    /// The space in which logical index and parameters are the same numbers.
    pub(crate) fn identity(parameters: Vec<(&'static str, Dim)>) -> Self {
        let count = u32::try_from(parameters.len()).expect("few parameters");
        Self {
            logical: parameters
                .iter()
                .map(|(_, extent)| extent.clone())
                .collect(),
            index: (0..count).map(Dim::index).collect(),
            parameters,
            vectors: false,
        }
    }

    /// Adds logical axes whose row-major position is parameter `name`; `axes` are positions in `logical`.
    pub(crate) fn cover(&mut self, name: &'static str, axes: &[usize]) {
        let shape: Vec<Dim> = axes.iter().map(|&n| self.logical[n].clone()).collect();
        let number = u32::try_from(self.parameters.len()).expect("few parameters");
        self.parameters
            .push((name, shape.iter().cloned().product()));
        self.index.resize(self.logical.len(), Dim::zero());
        let extents = Extents::new(self.parameters.iter().map(|(_, e)| e.clone()).collect());
        for (&axis, index) in axes
            .iter()
            .zip(unravel(&Dim::index(number), &shape, &extents))
        {
            self.index[axis] = index;
        }
    }

    /// As [`IndexSpace::cover`], parameter `name` counting vectors of four elements along the last of `axes`,
    /// whose length is a multiple of 4. No axes are covered after these.
    pub(crate) fn cover_vectors(&mut self, name: &'static str, axes: &[usize]) {
        let Some(&last) = axes.last() else {
            unreachable!("vectors run along an axis");
        };
        let len = self.logical[last].clone();
        let four = Dim::from(4);
        self.logical[last] = len.exact_div(&four).expect("a multiple of 4");
        self.cover(name, axes);
        self.logical[last] = len;
        self.vectors = true;
        let element = u32::try_from(self.parameters.len()).expect("few parameters");
        self.index[last] = four * self.index[last].clone() + Dim::index(element);
    }

    /// The parameter that a logical index is, or whose vectors it goes through.
    pub(super) fn parameter(&self, n: u32) -> Option<&'static str> {
        let index = self.index.get(n as usize)?;
        let element = u32::try_from(self.parameters.len()).ok()?;
        let number = index.as_index().or_else(|| {
            let (step, first) = index.split_index(element)?;
            let vector = first.exact_div(&Dim::from(4))?;
            vector.as_index().filter(|_| self.vectors && step.is(1))
        })?;
        self.parameters.get(number as usize).map(|(name, _)| *name)
    }

    pub(super) fn parameter_extents(&self) -> Vec<Dim> {
        self.parameters.iter().map(|(_, e)| e.clone()).collect()
    }
}

/// Row-major position `linear` as one index an axis.
fn unravel(linear: &Dim, shape: &[Dim], extents: &Extents) -> Vec<Dim> {
    let mut out = vec![Dim::zero(); shape.len()];
    let mut stride = Dim::one();
    for (n, dim) in shape.iter().enumerate().rev() {
        if dim.is(1) {
            continue;
        }
        let quotient = linear.floor_div(&stride, extents);
        let outermost = shape[..n].iter().all(|d| d.is(1));
        out[n] = if outermost {
            quotient
        } else {
            quotient.modulo(dim, extents)
        };
        stride = stride * dim.clone();
    }
    out
}
