//! Durations as Go writes them: `1h30m`, `250ms`.

use std::time::Duration;

/// Reads a duration as Go's `time.ParseDuration` does. A negative one is refused.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: write it like 90s, 10m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let end = tail.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in
            [("2h", 7_200_000), ("1h30m", 5_400_000), ("1.5s", 1500), ("250ms", 250), ("0", 0), ("+3m0.5s", 180_500)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "-1s", "1d", "h", "1s2", ".s", "1..2s", "9e9h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
