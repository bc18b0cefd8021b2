//! Where the outputs of a run lie in the one buffer they are read through.

use crate::session::HostTensorRef;
use attnc_plan::{DType, DimError, DimValues, Plan, Port};

/// All outputs at some lengths.
#[derive(Debug)]
pub(crate) struct OutputLayout {
    places: Vec<Place>,
    /// Bytes of the buffer: 4 at least, since there are no empty ones.
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct Place {
    dtype: DType,
    shape: Vec<usize>,
    offset: u64,
    bytes: u64,
}

impl Place {
    /// Copies move whole words.
    fn padded(&self) -> u64 {
        self.bytes.next_multiple_of(4)
    }
}

impl OutputLayout {
    /// Lays the outputs out one after another.
    pub(crate) fn new(plan: &Plan, dims: &DimValues) -> Result<Self, DimError> {
        let mut offset = 0;
        let mut places = Vec::with_capacity(plan.outputs.len());
        for port in &plan.outputs {
            let place = Place {
                dtype: port.dtype,
                shape: concrete(port, dims)?,
                offset,
                bytes: plan.buffer(port.buffer).bytes(dims)?,
            };
            offset += place.padded().next_multiple_of(8);
            places.push(place);
        }
        let bytes = places.last().map_or(0, |p| p.offset + p.padded()).max(4);
        Ok(Self { places, bytes })
    }

    /// Records the copies from the outputs' buffers into `staging`.
    pub(crate) fn copy(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: &[wgpu::Buffer],
        staging: &wgpu::Buffer,
    ) {
        let filled = self.places.iter().zip(outputs).filter(|(p, _)| p.bytes > 0);
        for (place, buffer) in filled {
            encoder.copy_buffer_to_buffer(buffer, 0, staging, place.offset, Some(place.padded()));
        }
    }

    /// Hands out each output, as it lies in what was read.
    pub(crate) fn each(&self, staged: &[u8], each: &mut dyn FnMut(usize, HostTensorRef<'_>)) {
        for (at, place) in self.places.iter().enumerate() {
            // The staging buffer is mapped, so offsets into it fit a usize.
            let (start, len) = (place.offset as usize, place.bytes as usize);
            let tensor = HostTensorRef {
                dtype: place.dtype,
                shape: &place.shape,
                bytes: &staged[start..start + len],
            };
            each(at, tensor);
        }
    }
}

fn concrete(port: &Port, dims: &DimValues) -> Result<Vec<usize>, DimError> {
    let value = |d| {
        let value = dims.eval(d)?;
        usize::try_from(value).map_err(|_| DimError::Overflow(d.to_string()))
    };
    port.shape.iter().map(value).collect()
}
