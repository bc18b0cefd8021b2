//! A folder of its own for each case, and the command run in it.

use crate::onnx;
use attnc::onnx::proto::GraphProto;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Address space of a process, in KiB; a model of a few hundred bytes needs a small part of it.
const MEMORY: &str = "1500000";

/// What the process said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

/// A folder of its own, and the command run on files in it.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), bytes).expect("the folder can be written");
        self
    }

    pub(crate) fn model(&self, name: &str, graph: GraphProto) -> &Self {
        self.write(name, onnx::model(graph))
    }

    /// `attnc arguments…` in the folder; a number in `MEMORY` bounds what it may allocate.
    pub(crate) fn attnc(&self, arguments: &[&str]) -> Said {
        let attnc = env!("CARGO_BIN_EXE_attnc");
        let mut command = if cfg!(target_os = "linux") {
            let mut shell = Command::new("sh");
            let script = format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
            shell.args(["-c", &script, attnc]);
            shell
        } else {
            Command::new(attnc)
        };
        command.args(arguments).current_dir(self.folder.path());
        // A backtrace is no part of a message.
        let output = command
            .env("RUST_BACKTRACE", "0")
            .env("ATTNC_CACHE_DIR", "")
            .output();
        let output = output.expect("attnc starts");
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
        Said {
            code: output.status.code(),
            text: text.concat(),
        }
    }

    #[track_caller]
    pub(crate) fn refuses(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        self.attnc(arguments).expect(code, parts);
    }
}

impl Said {
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, parts: &[&str]) {
        let text = &self.text;
        assert!(!text.contains("panicked"), "{text}");
        assert!(!text.contains("memory allocation"), "{text}");
        assert_eq!(self.code, Some(code), "{text}");
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
    }
}

/// The smallest real model.
pub(crate) fn bert() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/bert_tiny.onnx")
}
