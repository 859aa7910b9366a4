//! Numbers in few characters, for columns that keep their width.

/// A number without a value.
pub(super) const NONE: &str = "-";

/// A rate or a count in at most five characters: `0`, `4.2`, `731`, `12.3k`, `4.56M`.
pub(super) fn count(number: f64) -> String {
    match number {
        it if it < 0.05 => "0".to_owned(),
        it if it < 9.95 => format!("{it:.1}"),
        it if it < 9_999.5 => format!("{it:.0}"),
        it if it < 99_950.0 => format!("{:.1}k", it / 1e3),
        it if it < 999_500.0 => format!("{:.0}k", it / 1e3),
        it if it < 9_995_000.0 => format!("{:.2}M", it / 1e6),
        it => format!("{:.0}M", it / 1e6),
    }
}

/// A number of things, as [`count`], but without tenths.
pub(super) fn whole(number: f64) -> String {
    if number < 9_999.5 { format!("{number:.0}") } else { count(number) }
}

/// Bytes per second as megabytes (10⁶ bytes) per second.
pub(super) fn megabytes(bytes_per_s: f64) -> String {
    match bytes_per_s / 1e6 {
        it if it < 0.005 => "0".to_owned(),
        it if it < 9.995 => format!("{it:.2}"),
        it if it < 99.95 => format!("{it:.1}"),
        it => format!("{it:.0}"),
    }
}

/// A time of that many microseconds, in at most six characters: `<1µs`, `85µs`, `1.23ms`, `12.3s`.
pub(super) fn time(microseconds: f64) -> String {
    match microseconds {
        it if it < 0.5 => "<1µs".to_owned(),
        it if it < 999.5 => format!("{it:.0}µs"),
        it if it < 9_995.0 => format!("{:.2}ms", it / 1e3),
        it if it < 99_950.0 => format!("{:.1}ms", it / 1e3),
        it if it < 999_500.0 => format!("{:.0}ms", it / 1e3),
        it if it < 99.95e6 => format!("{:.1}s", it / 1e6),
        it => format!("{:.0}s", it / 1e6),
    }
}

/// Seconds that are left, in at most five characters: `0s`, `599s`, `120m`, `48h`.
pub(super) fn left(seconds: f64) -> String {
    match seconds {
        it if it < 600.0 => format!("{it:.0}s"),
        it if it < 36_000.0 => format!("{:.0}m", it / 60.0),
        it if it < 1e7 => format!("{:.0}h", it / 3600.0),
        it => format!("{:.0}d", it / 86_400.0),
    }
}

/// A value, if there is one.
pub(super) fn some(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_columns() {
        let counts = [0.0, 0.04, 4.21, 9.96, 731.4, 9_999.0, 12_345.0, 123_456.0, 4.56e6, 1.2e8];
        let shown = ["0", "0", "4.2", "10", "731", "9999", "12.3k", "123k", "4.56M", "120M"];
        assert_eq!(counts.map(count), shown);
        assert_eq!([3.0, 9_014.0, 12_345.0].map(whole), ["3", "9014", "12.3k"]);
        let rates = [0.0, 1e3, 4.2e6, 99.96e6, 12_300e6];
        assert_eq!(rates.map(megabytes), ["0", "0", "4.20", "100", "12300"]);
        let times = [0.0, 85.2, 999.6, 1_234.0, 45_678.0, 456_780.0, 12_300_000.0, 600e6];
        let shown = ["<1µs", "85µs", "1.00ms", "1.23ms", "45.7ms", "457ms", "12.3s", "600s"];
        assert_eq!(times.map(time), shown);
        assert_eq!([0.4, 599.0, 7_200.0, 172_800.0].map(left), ["0s", "599s", "120m", "48h"]);
        assert_eq!(some(None, count), NONE);
    }
}
