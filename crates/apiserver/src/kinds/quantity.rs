//! Quantities (`500m`, `1.5Gi`) in canonical form, exact to the nano.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes from nano upwards, a factor of 1000 each.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// Reads a quantity; numbers count as decimal.
    pub fn read(value: &Value) -> Option<Self> {
        value.as_str().map_or_else(|| Self::parse(&value.as_number()?.to_string()), Self::parse)
    }

    /// Parses text such as `-1.5Gi`, `100m`, `1e3`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, suffix) = rest.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() + fraction.len() > 30 {
            return None;
        }
        let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let (factor, format) = suffix_factor(suffix)?;
        let (numerator, divisor) = factor;
        let product = mantissa.checked_mul(numerator)?.checked_mul(NANO)?;
        let divisor = scale.checked_mul(divisor)?;
        // What is finer than a nano is rounded up, away from zero.
        let nanos = product / divisor + i128::from(product % divisor != 0);
        Some(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// The same value, rounded up to thousandths, as resource lists keep it.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let step = NANO / 1000;
        let rest = self.nanos % step;
        let nanos = if rest == 0 { self.nanos } else { self.nanos - rest + step * rest.signum() };
        Self { nanos, ..self }
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whole units only.
    pub fn is_integer(self) -> bool {
        self.nanos % NANO == 0
    }

    pub fn compare(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// The sum, in the format of the left side.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), ..self }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { nanos, format } = *self;
        if nanos == 0 {
            return f.write_str("0");
        }
        // A binary quantity below 1024, or with a fraction, is written in decimal.
        if format == Format::Binary && nanos % NANO == 0 && (nanos / NANO).abs() >= 1024 {
            let mut value = nanos / NANO;
            let mut suffix = "";
            for name in BINARY {
                if value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                suffix = name;
            }
            return write!(f, "{value}{suffix}");
        }
        let (mut value, mut step) = (nanos, 0_usize);
        while value % 1000 == 0 && step + 1 < DECIMAL.len() {
            value /= 1000;
            step += 1;
        }
        if format == Format::Exponent {
            return match step {
                3 => write!(f, "{value}"),
                _ => write!(f, "{value}e{}", i64::try_from(step).map_or(0, |step| step * 3 - 9)),
            };
        }
        write!(f, "{value}{}", DECIMAL.get(step).copied().unwrap_or_default())
    }
}

/// Numerator and denominator of a suffix.
fn suffix_factor(suffix: &str) -> Option<((i128, i128), Format)> {
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some(((1_i128 << (10 * (at + 1)), 1), Format::Binary));
    }
    if let Some(at) = DECIMAL.iter().position(|name| *name == suffix) {
        let power = |n: usize| 1000_i128.pow(u32::try_from(n).unwrap_or_default());
        let factor = if at >= 3 { (power(at - 3), 1) } else { (1, power(3 - at)) };
        return Some((factor, Format::Decimal));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs()).filter(|_| exponent.abs() <= 18)?;
    Some((if exponent < 0 { (1, power) } else { (power, 1) }, Format::Exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_the_real_server_writes_them() {
        for (given, written) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("2000m", "2"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("100", "100"),
            ("1500", "1500"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("0", "0"),
            ("-1", "-1"),
            ("0.5Ki", "512"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
        ] {
            assert_eq!(Quantity::parse(given).unwrap().to_string(), written, "{given}");
        }
    }

    #[test]
    fn nonsense_is_no_quantity() {
        for given in ["", "x", "1x", "1.2.3", ".", "--1", "1e99999999999", &"9".repeat(60)] {
            assert_eq!(Quantity::parse(given), None, "{given}");
        }
    }
}
