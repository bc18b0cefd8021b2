//! How much memory a run may take, so that absurd sizes are refused before anything is allocated.

/// Used where the system does not say: half of a large machine of today.
const UNKNOWN_SYSTEM_LIMIT: u128 = 64 << 30;

/// Bytes that can be allocated without paging, as the system says.
pub(crate) fn available_bytes() -> u128 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| parse_meminfo(&text))
        .unwrap_or(UNKNOWN_SYSTEM_LIMIT)
}

/// The line `MemAvailable:   123 kB`.
fn parse_meminfo(text: &str) -> Option<u128> {
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kilobytes: u128 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kilobytes() {
        let text = "MemTotal:       100 kB\nMemAvailable:    50 kB\n";
        assert_eq!(parse_meminfo(text), Some(50 * 1024));
        assert_eq!(parse_meminfo("nonsense"), None);
    }
}
