//! What the process has held in memory.

/// The most bytes that this process has held at once so far, mapped files included as far as they were read;
/// `None` where the system does not say. Linux does.
#[must_use]
pub fn host_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    peak_of(&status)
}

/// `VmHWM: 123456 kB`, the peak of the resident set.
fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_where_there_is_one() {
        let status = "Name:\tattnc\nVmPeak:\t 9999 kB\nVmHWM:\t    1234 kB\nThreads:\t1\n";
        assert_eq!(peak_of(status), Some(1234 * 1024));
        assert_eq!(peak_of("Name:\tattnc\n"), None);
        if cfg!(target_os = "linux") {
            assert!(host_peak_bytes().is_some_and(|bytes| bytes > 1 << 16));
        }
    }
}
