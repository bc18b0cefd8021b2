//! Peers: other programs, spoken to over pipes.
//!
//! A peer is any program that says who it is and then answers one line of JSON with one line of JSON:
//!
//! ```text
//! < {"name": "torch cpu", "version": "torch 2.15.0", "side": "cpu"}
//! > {"prepare": {"kind": "attention", "dtype": "f32", "heads": 8, "kv_heads": 8, "q": 512, "kv": 512, "d": 64,
//!                "causal": true, "window": null, "result": "/tmp/…/out",
//!                "operands": [{"name": "q", "dtype": "float32", "shape": [1, 8, 512, 64], "file": "/tmp/…/q"}, …]}}
//! < {"kernel": "flash"}                       it has run once, and written its first output as f32
//! > {"run": {"runs": 5, "burst": 1}}
//! < {"ms": [3.1, 3.0, 3.0, 3.1, 3.0]}
//! < {"cannot": "why"}                         instead of either
//! ```
//!
//! Operands and results are raw little-endian files. It ends when its input does.
//!
//! While it is not asked anything it is stopped, where the system can do that: threads that wait for work by looking
//! for it would slow down whoever has the turn (those of burn take a sixth of a core, which cost others a tenth).

use super::{Contestant, Ready, Side};
use crate::shape::{Mask, Work};
use crate::shapes::dtype_name;
use crate::task::Task;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running peer.
pub struct Peer {
    name: String,
    version: String,
    side: Side,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Peer {
    /// Starts it; operands and results pass through `folder`.
    ///
    /// # Errors
    /// Where it does not start, or says so: its library is not installed, it finds no device.
    pub fn start(mut command: Command, folder: &Path) -> Result<Self, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(|e| format!("{program} does not start: {e}"))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(requests), Some(answers)) = pipes else {
            return Err(format!("{program} has no pipes"));
        };
        let mut peer = Self {
            name: program,
            version: String::new(),
            side: Side::Cpu,
            child,
            requests,
            answers: BufReader::new(answers),
            folder: folder.to_owned(),
        };
        let hello = peer.answer()?;
        peer.signal(Signal::Stop);
        let text = |key: &str| hello[key].as_str().map(str::to_owned);
        peer.name = text("name").ok_or_else(|| format!("{} gives no name", peer.name))?;
        peer.version = text("version").unwrap_or_default();
        peer.side = serde_json::from_value(hello["side"].clone()).map_err(|_| {
            format!(
                "{} does not say whether it runs on the gpu or the cpu",
                peer.name
            )
        })?;
        Ok(peer)
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        self.signal(Signal::Continue);
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        let answer = sent
            .map_err(|_| format!("{} has ended", self.name))
            .and_then(|()| self.answer());
        self.signal(Signal::Stop);
        answer
    }

    /// Stops it or lets it go on. One that has ended takes no signal, which the next answer tells.
    #[cfg(unix)]
    fn signal(&self, signal: Signal) {
        use rustix::process::{Pid, Signal as Unix, kill_process};
        let signal = match signal {
            Signal::Stop => Unix::STOP,
            Signal::Continue => Unix::CONT,
        };
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    #[cfg(not(unix))]
    fn signal(&self, _: Signal) {}

    fn answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.map_err(|e| e.to_string())? == 0 {
            return Err(format!("{} has ended", self.name));
        }
        let answer: Value = serde_json::from_str(&line)
            .map_err(|_| format!("{} answers `{}`", self.name, line.trim_end()))?;
        match answer["cannot"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer),
        }
    }
}

/// What a peer is told besides requests.
#[derive(Clone, Copy)]
enum Signal {
    Stop,
    Continue,
}

impl Contestant for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn side(&self) -> Side {
        self.side
    }

    fn prepare(&mut self, task: &Task) -> Result<Ready, String> {
        let result = self.folder.join("out");
        let request = request(task, &self.folder, &result)?;
        let answer = self.ask(&json!({ "prepare": request }))?;
        let bytes = std::fs::read(&result).map_err(|e| format!("no result: {e}"))?;
        let words = bytes.as_chunks::<4>().0.iter();
        Ok(Ready {
            kernel: answer["kernel"].as_str().unwrap_or_default().to_owned(),
            output: words.map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            memory: None,
        })
    }

    fn run(&mut self, runs: u32, burst: u32) -> Result<Vec<f64>, String> {
        let answer = self.ask(&json!({ "run": { "runs": runs, "burst": burst } }))?;
        serde_json::from_value(answer["ms"].clone())
            .map_err(|_| format!("{} gives no times", self.name))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // One that is asked nothing more would wait for ever; it holds nothing that needs saving.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the operands, and says where they are and what is to be done with them.
fn request(task: &Task, folder: &Path, result: &Path) -> Result<Value, String> {
    let mut operands = Vec::new();
    for (name, tensor) in &task.operands {
        let file = folder.join(name);
        std::fs::write(&file, tensor.bytes()).map_err(|e| format!("cannot write operands: {e}"))?;
        operands.push(json!({
            "name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape(), "file": file,
        }));
    }
    let mut request = match &task.shape.work {
        Work::Attention(a) => {
            let window = match a.mask {
                Mask::Window(size) => Some(size),
                Mask::None | Mask::Causal => None,
            };
            json!({
                "kind": "attention", "heads": a.heads, "kv_heads": a.kv_heads, "q": a.q, "kv": a.kv, "d": a.d,
                "causal": a.mask == Mask::Causal, "window": window,
            })
        }
        Work::Matmul { m, k, n } => json!({ "kind": "matmul", "m": m, "k": k, "n": n }),
        Work::Model { file, .. } => json!({ "kind": "model", "model": file }),
    };
    request["dtype"] = dtype_name(task.shape.dtype).into();
    request["operands"] = operands.into();
    request["result"] = json!(result);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_peer_says_who_it_is_and_answers_line_by_line() {
        let script = r#"echo '{"name": "echo", "version": "echo 1", "side": "gpu"}'; read x; echo '{"ms": [1.5]}'; read x; echo '{"cannot": "no"}'"#;
        let mut peer = Peer::start(shell(script), Path::new(".")).unwrap();
        assert_eq!(
            (peer.name(), peer.version(), peer.side()),
            ("echo", "echo 1", Side::Gpu)
        );
        assert_eq!(peer.run(1, 1), Ok(vec![1.5]));
        assert_eq!(peer.run(1, 1), Err("no".to_owned()));
        assert_eq!(peer.run(1, 1), Err("echo has ended".to_owned()));
    }

    /// The state of a process in Linux' words: `T` is stopped.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_peer_that_is_not_asked_anything_is_stopped() {
        let script = r#"echo '{"name": "echo", "version": "echo 1", "side": "gpu"}'; read x; echo '{"ms": [1.5]}'; read x"#;
        let mut peer = Peer::start(shell(script), Path::new(".")).unwrap();
        let stat = format!("/proc/{}/stat", peer.child.id());
        let is_stopped = || {
            // The signal arrives when the process is next looked at.
            let mut looks = (0..1000).map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                std::fs::read_to_string(&stat).unwrap()
            });
            looks.any(|stat| stat.contains(") T "))
        };
        assert!(is_stopped(), "before it is asked");
        assert_eq!(peer.run(1, 1), Ok(vec![1.5]));
        assert!(is_stopped(), "after it has answered");
    }

    #[test]
    fn a_peer_that_cannot_start_says_why() {
        let said = |script| Peer::start(shell(script), Path::new(".")).err().unwrap();
        assert_eq!(
            said(r#"echo '{"cannot": "torch is not installed"}'"#),
            "torch is not installed"
        );
        assert_eq!(said("true"), "sh has ended");
        assert_eq!(said("echo hello"), "sh answers `hello`");
    }
}
