//! Sizes that a request asks for.

use tonic::Status;

use super::signed;
use crate::proto::CapacityRange;

/// Size of a volume for which none is asked.
const DEFAULT: u64 = 1 << 30;

/// The bytes that a volume is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    /// At least; 0 if any number will do.
    pub(super) required: u64,
    /// At most.
    limit: Option<u64>,
}

impl Capacity {
    /// The capacity that a request asks for.
    ///
    /// # Errors
    /// `InvalidArgument` if it is negative, or more than its own limit.
    pub(super) fn parse(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let range = range.copied().unwrap_or_default();
        let bytes = |it: i64| {
            let wrong = |_| Status::invalid_argument(format!("{it} is no number of bytes"));
            u64::try_from(it).map_err(wrong)
        };
        let (required, limit) = (bytes(range.required_bytes)?, bytes(range.limit_bytes)?);
        let limit = (limit > 0).then_some(limit);
        if limit.is_some_and(|limit| limit < required) {
            return Err(Status::invalid_argument("more bytes are required than the limit allows"));
        }
        Ok(Self { required, limit })
    }

    /// Whether a volume of that size will do.
    pub(super) fn fits(self, size: u64) -> bool {
        size >= self.required && self.limit.is_none_or(|limit| size <= limit)
    }

    /// The size of a new volume, which is a multiple of `granularity`.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such multiple.
    pub(super) fn size(self, granularity: u64) -> Result<u64, Status> {
        let wanted = match self.required {
            0 => DEFAULT.min(self.limit.unwrap_or(DEFAULT)) / granularity * granularity,
            required => required.checked_next_multiple_of(granularity).unwrap_or(0),
        };
        if wanted == 0 || signed(wanted) == i64::MAX || !self.fits(wanted) {
            let message = format!("sizes here are multiples of {granularity} bytes, and none fits");
            return Err(Status::out_of_range(message));
        }
        Ok(wanted)
    }

    /// The size to which a volume of that size has to grow, if it has to.
    ///
    /// # Errors
    /// As [`size`](Self::size); or it is larger than the limit: volumes don't shrink.
    pub(super) fn grown(self, size: u64, granularity: u64) -> Result<Option<u64>, Status> {
        if self.fits(size) {
            return Ok(None);
        }
        if size >= self.required {
            let message = format!("it has {size} bytes, more than the limit, and does not shrink");
            return Err(Status::out_of_range(message));
        }
        self.size(granularity).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn capacity(required_bytes: i64, limit_bytes: i64) -> Result<Capacity, Status> {
        Capacity::parse(Some(&CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn a_size_is_in_the_range_and_a_multiple() {
        let size = |required, limit, step| capacity(required, limit).unwrap().size(step);
        assert_eq!(size(0, 0, 4096).unwrap(), DEFAULT);
        assert_eq!(size(0, 5000, 4096).unwrap(), 4096);
        assert_eq!(size(5000, 0, 4096).unwrap(), 8192);
        assert_eq!(size(8192, 8192, 4096).unwrap(), 8192);
        for (required, limit) in [(5000, 5000), (0, 100), (i64::MAX, 0)] {
            let error = size(required, limit, 4096).unwrap_err();
            assert_eq!(error.code(), Code::OutOfRange, "{required} {limit}");
        }
        for (required, limit) in [(-1, 0), (0, -1), (2, 1)] {
            let error = capacity(required, limit).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{required} {limit}");
        }
        assert_eq!(Capacity::parse(None).unwrap(), capacity(0, 0).unwrap());
    }

    #[test]
    fn volumes_grow_and_never_shrink() {
        let grown = |required, limit| capacity(required, limit).unwrap().grown(8192, 4096);
        assert_eq!(grown(8192, 0).unwrap(), None);
        assert_eq!(grown(100, 0).unwrap(), None);
        assert_eq!(grown(8193, 0).unwrap(), Some(12288));
        assert_eq!(grown(100, 8000).unwrap_err().code(), Code::OutOfRange);
    }
}
