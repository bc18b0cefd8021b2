//! The peer's side of the protocol of `contestant/peer.rs`, shared by the peers in Rust.

use serde_json::{Value, json};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

/// An operand, row-major; integers as f32.
pub struct Operand {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// What a peer does.
pub trait Peer {
    /// Makes ready and runs once: the name of what was chosen, and the result.
    fn prepare(&mut self, task: &Task) -> Result<(String, Vec<f32>), String>;

    /// Runs so many times and waits for the end.
    fn run(&mut self, burst: u64) -> Result<(), String>;
}

/// What is asked for.
pub enum Work {
    Attention { causal: bool, window: Option<usize> },
    Matmul,
    Model { file: PathBuf },
}

/// A request with its operands: `q`, `k`, `v`, or `a`, `b`, or a model's inputs.
pub struct Task {
    pub work: Work,
    pub operands: Vec<Operand>,
}

impl Task {
    fn read(request: &Value) -> Result<Self, String> {
        if request["dtype"] != "f32" {
            return Err(format!("does f32 only, asked for {}", request["dtype"]));
        }
        let work = match request["kind"].as_str() {
            Some("attention") => Work::Attention {
                causal: request["causal"] == true,
                window: request["window"].as_u64().map(|w| w as usize),
            },
            Some("matmul") => Work::Matmul,
            Some("model") => Work::Model {
                file: request["model"].as_str().ok_or("no model")?.into(),
            },
            other => return Err(format!("does not know {other:?}")),
        };
        let operands = request["operands"].as_array().ok_or("no operands")?;
        let operands = operands
            .iter()
            .map(Operand::read)
            .collect::<Result<_, _>>()?;
        Ok(Self { work, operands })
    }
}

impl Operand {
    fn read(said: &Value) -> Result<Self, String> {
        let file = said["file"].as_str().ok_or("an operand without a file")?;
        let bytes = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        let shape: Vec<usize> =
            serde_json::from_value(said["shape"].clone()).map_err(|e| e.to_string())?;
        let words = bytes.as_chunks::<4>().0.iter();
        let pairs = bytes.as_chunks::<8>().0.iter();
        let values: Vec<f32> = match said["dtype"].as_str() {
            Some("float32") => words.map(|b| f32::from_le_bytes(*b)).collect(),
            Some("int32") => words.map(|b| i32::from_le_bytes(*b) as f32).collect(),
            Some("int64") => pairs.map(|b| i64::from_le_bytes(*b) as f32).collect(),
            other => return Err(format!("{file} holds {other:?}, which peers do not read")),
        };
        if shape.iter().product::<usize>() != values.len() {
            return Err(format!("{file} does not hold {shape:?}"));
        }
        let name = said["name"].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            name,
            shape,
            values,
        })
    }
}

/// Answers until there are no more requests.
pub fn serve(name: &str, version: &str, side: &str, peer: &mut dyn Peer) {
    say(&json!({ "name": name, "version": version, "side": side }));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        // What panics cannot do this task; others may still be possible.
        let answered = catch_unwind(AssertUnwindSafe(|| answer(peer, &line)));
        match answered.unwrap_or_else(|_| Err("panicked".to_owned())) {
            Ok(answer) => say(&answer),
            Err(why) => say(&json!({ "cannot": why })),
        }
    }
}

fn answer(peer: &mut dyn Peer, line: &str) -> Result<Value, String> {
    let request: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    if let Some(request) = request.get("prepare") {
        let (kernel, result) = peer.prepare(&Task::read(request)?)?;
        let bytes: Vec<u8> = result.iter().flat_map(|x| x.to_le_bytes()).collect();
        let file = request["result"]
            .as_str()
            .ok_or("no place for the result")?;
        std::fs::write(file, bytes).map_err(|e| format!("{file}: {e}"))?;
        return Ok(json!({ "kernel": kernel }));
    }
    let request = &request["run"];
    let number = |key: &str| request[key].as_u64().ok_or(format!("no number of {key}"));
    let (runs, burst) = (number("runs")?, number("burst")?.max(1));
    let mut times = Vec::new();
    for _ in 0..runs {
        let start = Instant::now();
        peer.run(burst)?;
        times.push(1e3 * start.elapsed().as_secs_f64() / burst as f64);
    }
    Ok(json!({ "ms": times }))
}

fn say(message: &Value) {
    println!("{message}");
    // Nobody reads any more only where the driver has ended, and then this will too.
    let _ = std::io::stdout().flush();
}
