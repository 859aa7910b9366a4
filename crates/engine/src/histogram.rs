//! A histogram of times in a fixed amount of memory, whatever is measured and however often.

use std::fmt;

/// Counts by size, to about 3 %: each power of two is split into 32 classes.
#[derive(Clone)]
pub struct Histogram {
    classes: Vec<u64>,
    count: u64,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    const SPLIT: u32 = 5;

    /// An empty histogram.
    pub fn new() -> Self {
        Self { classes: vec![0; 64 << Self::SPLIT], count: 0, sum: 0 }
    }

    fn class(value: u64) -> usize {
        let bits = value.max(1 << Self::SPLIT).ilog2() - Self::SPLIT;
        ((bits as usize) << Self::SPLIT) + (value >> bits) as usize
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.classes[Self::class(value)] += 1;
        self.count += 1;
        self.sum += value;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            *class += more;
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Forgets all values, and keeps the memory.
    pub fn clear(&mut self) {
        self.classes.fill(0);
        (self.count, self.sum) = (0, 0);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Their mean; zero without any.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The least value that this share of all, 0 to 1, is at most; zero without any.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::least(class);
            }
        }
        0
    }

    /// The classes that are not empty, in ascending order: the greatest value that is in it, and
    /// the number of values.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.classes.iter().enumerate().filter(|(_, count)| **count > 0);
        // The last class ends with the type.
        filled.map(|(class, count)| (Self::least(class + 1).wrapping_sub(1), *count))
    }

    /// The least value in a class.
    fn least(class: usize) -> u64 {
        let bits = (class >> Self::SPLIT).saturating_sub(1);
        ((class - (bits << Self::SPLIT)) as u64) << bits
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_percent_also_when_merged() {
        let mut halves = [Histogram::new(), Histogram::new()];
        for value in 1..=100_000u64 {
            halves[(value % 2) as usize].add(value);
        }
        let [mut histogram, other] = halves;
        histogram.merge(&other);
        for part in [0.001, 0.5, 0.9, 0.999] {
            let (found, right) = (histogram.quantile(part) as f64, part * 100_000.0);
            assert!((found / right - 1.0).abs() < 0.04, "{part}: {found}");
        }
        assert_eq!((histogram.count(), histogram.mean()), (100_000, 50_000.5));
    }

    #[test]
    fn buckets_have_all_values_up_to_the_next_one() {
        let mut histogram = Histogram::new();
        for value in [0, 63, 64, 65, 66, 1000, u64::MAX - 2000] {
            histogram.add(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(0, 1), (63, 1), (65, 2), (67, 1), (1007, 1), (u64::MAX, 1)]);
        for (last, _) in buckets.into_iter().filter(|(last, _)| *last < u64::MAX) {
            let mut other = Histogram::new();
            other.add(last);
            other.add(last + 1);
            assert_eq!(other.buckets().next(), Some((last, 1)), "it is the last of its class");
        }
    }

    #[test]
    fn the_ends_of_what_can_be_counted() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (0, 0.0));
        histogram.add(7);
        assert_eq!(histogram.quantile(0.5), 7);
        histogram.add(u64::MAX - 7);
        assert!(histogram.quantile(1.0) > u64::MAX / 64 * 62);
    }
}
