//! What the adapter can do at best, measured through the same wgpu: arithmetic and bandwidth.
//!
//! Arithmetic: `a = a * x + y` over independent values in registers; how many it takes to hide the latency
//! differs, and so does how many fit the registers, so the best of some counts is the peak. Bandwidth: a copy, once through buffers larger than any
//! cache and once through 16 MiB, where a cache may help; the faster is the peak, as a roofline (Williams,
//! Waterman, Patterson 2009) should be one that nothing beats.
//!
//! A machine that others use too does not always run as fast: [`Yardstick`] tells, between turns, at what part of
//! the peak its arithmetic runs at that moment.

use crate::device::wait;
use attnc::HostDType;
use attnc::gpu::Gpu;
use std::time::Instant;

/// Peaks of a device.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Peaks {
    /// Operations a second in f32.
    pub flops_f32: f64,
    /// The same in f16, two at a time; `None` where the device has no f16, or nothing needs it.
    pub flops_f16: Option<f64>,
    /// Bytes a second of a copy, those read and those written.
    pub copy: f64,
}

/// Independent values a thread holds.
const CHAINS: [usize; 5] = [8, 12, 16, 24, 32];
/// At most so many multiplications and additions are in the body of the loop: enough that the loop itself
/// does not count, and so few that compilers keep their order, and values in registers.
const BODY: usize = 120;
const THREADS: u32 = 1 << 18;
const WORKGROUP: u32 = 256;
/// Buffers of a copy.
const COPIES: [u64; 2] = [8 << 20, 128 << 20];
/// Long enough that handing over the work does not show.
const ENOUGH_MS: f64 = 20.0;

impl Peaks {
    /// Measures.
    ///
    /// # Errors
    /// Trouble of the device, in words.
    pub fn measure(gpu: &Gpu, f16: bool) -> Result<Self, String> {
        let mut copy: f64 = 0.0;
        for bytes in COPIES {
            copy = copy.max(bandwidth(gpu, bytes.min(gpu.profile.limits.binding_bytes))?);
        }
        let peaks = Self {
            flops_f32: fastest(gpu, HostDType::F32)?.0,
            flops_f16: match f16 && gpu.profile.features.f16 {
                true => Some(fastest(gpu, HostDType::F16)?.0),
                false => None,
            },
            copy,
        };
        gpu.trouble().map_or(Ok(peaks), Err)
    }

    /// The better of two measurements: what one missed because the machine did something else.
    #[must_use]
    pub fn or_better(&self, other: &Self) -> Self {
        Self {
            flops_f32: self.flops_f32.max(other.flops_f32),
            flops_f16: match (self.flops_f16, other.flops_f16) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            },
            copy: self.copy.max(other.copy),
        }
    }

    /// A sentence where a later measurement differs by more than a seventh: whoever measured in between did
    /// not have the machine alone.
    #[must_use]
    pub fn unrest(&self, later: &Self) -> Option<String> {
        let (before, after) = (self.flops_f32, later.flops_f32);
        (before.min(after) < before.max(after) * 6.0 / 7.0).then(|| {
            format!(
                "not quiet: the arithmetic peak was {:.1} GFLOP/s before and {:.1} after, so do not trust these figures",
                before / 1e9,
                after / 1e9
            )
        })
    }

    /// Operations a second with elements of that type. Elements of f16 may be computed in f32 where that is
    /// faster, as on processors.
    #[must_use]
    pub fn flops(&self, dtype: HostDType) -> f64 {
        let f16 = self.flops_f16.filter(|_| dtype == HostDType::F16);
        f16.unwrap_or(0.0).max(self.flops_f32)
    }
}

/// What bounds a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Operations.
    Arithmetic,
    /// Bytes.
    Bandwidth,
}

/// A compute pipeline with its bind group.
struct Kernel<'g> {
    gpu: &'g Gpu,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl<'g> Kernel<'g> {
    fn new(gpu: &'g Gpu, wgsl: String, buffers: &[&wgpu::Buffer]) -> Self {
        let module = gpu
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some("peak"),
                source: wgpu::ShaderSource::Wgsl(wgsl.into()),
            });
        let pipeline = gpu
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some("peak"),
                layout: None,
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
        let entries: Vec<_> = (0u32..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("peak"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Self {
            gpu,
            pipeline,
            group,
        }
    }

    /// Milliseconds of so many dispatches in one submission.
    fn time(&self, workgroups: u32, dispatches: u32) -> Result<f64, String> {
        let start = Instant::now();
        let mut encoder = self
            .gpu
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        (0..dispatches).for_each(|_| pass.dispatch_workgroups(workgroups, 1, 1));
        drop(pass);
        self.gpu.queue.submit([encoder.finish()]);
        wait(self.gpu)?;
        Ok(1e3 * start.elapsed().as_secs_f64())
    }
}

fn buffer(gpu: &Gpu, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("peak"),
        size,
        usage: usage | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

/// The best of five, of as much work as takes long enough: `time` is asked with ever more.
fn best_rate(mut time: impl FnMut(u32) -> Result<f64, String>) -> Result<f64, String> {
    let mut amount = 1;
    while time(amount)? < ENOUGH_MS && amount < 1 << 20 {
        amount *= 2;
    }
    let times = (0..5)
        .map(|_| time(amount))
        .collect::<Result<Vec<_>, _>>()?;
    let best = times.into_iter().fold(f64::INFINITY, f64::min);
    Ok(f64::from(amount) * 1e3 / best)
}

/// The loop of multiplications and additions.
struct Arithmetic<'g> {
    kernel: Kernel<'g>,
    uniform: wgpu::Buffer,
    /// Operations of all threads in a round.
    per_round: f64,
}

impl<'g> Arithmetic<'g> {
    fn new(gpu: &'g Gpu, dtype: HostDType, chains: usize) -> Self {
        let uniform = buffer(gpu, 16, wgpu::BufferUsages::UNIFORM);
        let out = buffer(gpu, u64::from(THREADS) * 4, wgpu::BufferUsages::STORAGE);
        let kernel = Kernel::new(gpu, multiply_add(dtype, chains), &[&uniform, &out]);
        let lanes = if dtype == HostDType::F16 { 2.0 } else { 1.0 };
        Self {
            kernel,
            uniform,
            per_round: f64::from(THREADS) * 2.0 * body(chains) as f64 * lanes,
        }
    }

    /// Milliseconds of so many rounds.
    fn time(&self, rounds: u32) -> Result<f64, String> {
        // Known to the kernel at run time only, so that nothing can be computed beforehand.
        let mut words = rounds.to_le_bytes().to_vec();
        let numbers = [0.999f32, 0.001, 0.0];
        words.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
        let queue = &self.kernel.gpu.queue;
        queue.write_buffer(&self.uniform, 0, &words);
        self.kernel.time(THREADS / WORKGROUP, 1)
    }
}

/// The loop with the most operations a second, and how many these are.
fn fastest(gpu: &Gpu, dtype: HostDType) -> Result<(f64, Arithmetic<'_>), String> {
    let mut best: Option<(f64, Arithmetic<'_>)> = None;
    for chains in CHAINS {
        let arithmetic = Arithmetic::new(gpu, dtype, chains);
        let rate = arithmetic.per_round * best_rate(|rounds| arithmetic.time(rounds))?;
        if best.as_ref().is_none_or(|(most, _)| rate > *most) {
            best = Some((rate, arithmetic));
        }
    }
    Ok(best.expect("some counts of chains"))
}

/// How fast the adapter's arithmetic is at a moment.
pub struct Yardstick<'g> {
    arithmetic: Arithmetic<'g>,
    rounds: u32,
    peak: f64,
}

impl<'g> Yardstick<'g> {
    /// The loop with the most operations a second, long enough that handing it over does not show.
    ///
    /// # Errors
    /// Trouble of the device, in words.
    pub fn new(gpu: &'g Gpu, peaks: &Peaks) -> Result<Self, String> {
        let (rate, arithmetic) = fastest(gpu, HostDType::F32)?;
        let rounds = ENOUGH_MS * 1e-3 * rate / arithmetic.per_round;
        Ok(Self {
            rounds: rounds.ceil() as u32,
            peak: peaks.flops_f32,
            arithmetic,
        })
    }

    /// The part of the peak that it reaches now.
    ///
    /// # Errors
    /// Trouble of the device, in words.
    pub fn pace(&self) -> Result<f64, String> {
        let ms = self.arithmetic.time(self.rounds)?;
        let done = f64::from(self.rounds) * self.arithmetic.per_round;
        Ok(1e3 * done / ms / self.peak)
    }
}

/// Multiplications and additions of a round: as many for each value.
fn body(chains: usize) -> usize {
    BODY / chains * chains
}

/// The kernel, over `chains` values.
fn multiply_add(dtype: HostDType, chains: usize) -> String {
    let (enable, ty) = if dtype == HostDType::F16 {
        ("enable f16;\n", "vec2<f16>")
    } else {
        ("", "f32")
    };
    let scalar = if dtype == HostDType::F16 {
        "f16"
    } else {
        "f32"
    };
    let lines = |line: &dyn Fn(usize) -> String, count| (0..count).map(line).collect::<String>();
    let start = lines(
        &|c| format!("  var a{c} = {ty}({scalar}(f32(id.x % 8192u) * 1e-4 + {c}.0));\n"),
        chains,
    );
    let body = lines(
        &|i| format!("    a{0} = a{0} * x + y;\n", i % chains),
        body(chains),
    );
    let sum = (0..chains)
        .map(|c| format!("a{c}"))
        .collect::<Vec<_>>()
        .join(" + ");
    let result = if dtype == HostDType::F16 {
        "f32(sum.x + sum.y)"
    } else {
        "sum"
    };
    format!(
        "{enable}struct Params {{ rounds: u32, x: f32, y: f32, unused: f32 }}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
  let x = {ty}({scalar}(params.x));
  let y = {ty}({scalar}(params.y));
{start}  for (var round = 0u; round < params.rounds; round++) {{
{body}  }}
  let sum = {sum};
  out[id.x] = {result};
}}
"
    )
}

const COPY: &str = "
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> copied: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  copied[id.x] = source[id.x];
}
";

fn bandwidth(gpu: &Gpu, bytes: u64) -> Result<f64, String> {
    let from = buffer(gpu, bytes, wgpu::BufferUsages::STORAGE);
    let to = buffer(gpu, bytes, wgpu::BufferUsages::STORAGE);
    let kernel = Kernel::new(gpu, COPY.to_owned(), &[&from, &to]);
    let workgroups = u32::try_from(bytes / 16 / u64::from(WORKGROUP))
        .unwrap_or(65535)
        .min(65535);
    let copied = f64::from(workgroups) * f64::from(WORKGROUP) * 16.0;
    let copies_a_second = best_rate(|times| kernel.time(workgroups, times))?;
    Ok(2.0 * copied * copies_a_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_that_moves_is_unrest() {
        let of = |flops_f32| Peaks {
            flops_f32,
            ..Peaks::default()
        };
        assert_eq!(of(170e9).unrest(&of(160e9)), None);
        let said = of(80e9).unrest(&of(160e9)).unwrap();
        assert!(
            said.contains("80.0 GFLOP/s before and 160.0 after"),
            "{said}"
        );
    }

    #[test]
    fn the_body_holds_each_chain_equally_often() {
        for chains in CHAINS {
            let wgsl = multiply_add(HostDType::F32, chains);
            for chain in 0..chains {
                let line = format!("    a{chain} = a{chain} * x + y;");
                assert_eq!(wgsl.lines().filter(|l| *l == line).count(), BODY / chains);
            }
        }
    }
}
