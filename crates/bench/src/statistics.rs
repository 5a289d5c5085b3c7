//! Medians, spreads and fitted exponents.

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The distance between the quartiles as a share of the median.
pub(crate) fn spread(values: &[f64]) -> f64 {
    quartiles(values) / median(values)
}

pub(crate) fn quartiles(values: &[f64]) -> f64 {
    quantile(values, 0.75) - quantile(values, 0.25)
}

/// The value below which this share of the values lies, between two neighbours in proportion.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * float(last as u64);
    let (low, high) = (index(place.floor()), index(place.ceil()));
    sorted[low] + (sorted[high] - sorted[low]) * place.fract()
}

/// The power with which the second number grows with the first: least squares on the logarithms of both.
pub(crate) fn fitted_exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = float(logs.len() as u64);
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let over = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
    let under = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
    let exponent = over / under;
    exponent.is_finite().then_some(exponent)
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a round lie far below 2^53")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list: whole and not negative"
)]
pub(crate) fn index(place: f64) -> usize {
    place as usize
}
