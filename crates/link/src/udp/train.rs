//! The division of frames into trains.

/// The most datagrams of a train: the kernel's limit before Linux 6.9 (`UDP_MAX_SEGMENTS`).
pub const FRAMES_MAX: usize = 64;

/// A frame is padded to the length of its train if it has at least so many eighths of it. More
/// padding would take longer to send than another train.
const PADDED_FROM: usize = 7;

/// Frames that leave as one: datagrams of the same length, except that the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// The number of frames.
    pub frames: usize,
    /// Bytes of each datagram but the last.
    pub segment: usize,
    /// Bytes of padding in all of them.
    pub padding: usize,
}

/// The longest train at the beginning of a sequence of frames, each with its length and the most
/// bytes of a train that it may be in; a single frame may be longer. `None` without frames.
pub fn next(frames: impl IntoIterator<Item = (usize, usize)>) -> Option<Train> {
    let mut rest = frames.into_iter();
    let (first, mut bytes_max) = rest.next()?;
    // The shortest of the frames that are padded: all of them but the last.
    let (mut shortest, mut segment, mut last, mut frames) = (first, first, first, 1);
    let mut bytes = first;
    for (len, burst) in rest.take(FRAMES_MAX - 1) {
        bytes_max = bytes_max.min(burst);
        let longest = segment.max(len);
        let least = shortest.min(last);
        if least * 8 < longest * PADDED_FROM || frames * longest + len > bytes_max {
            break;
        }
        (shortest, segment, last, frames) = (least, longest, len, frames + 1);
        bytes += len;
    }
    Some(Train { frames, segment, padding: (frames - 1) * segment + last - bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trains(lengths: &[usize], bytes_max: usize) -> Vec<(usize, usize, usize)> {
        let (mut at, mut trains) = (0, Vec::new());
        while let Some(train) = next(lengths[at..].iter().map(|&len| (len, bytes_max))) {
            trains.push((train.frames, train.segment, train.padding));
            at += train.frames;
        }
        trains
    }

    #[test]
    fn frames_of_about_the_same_length_share_a_train() {
        assert_eq!(trains(&[], 65000), []);
        assert_eq!(trains(&[100], 65000), [(1, 100, 0)]);
        assert_eq!(trains(&[1456, 1432, 1472, 1472], 65000), [(4, 1472, 16 + 40)]);
        assert_eq!(trains(&[700, 800], 65000), [(2, 800, 100)]);
        assert_eq!(trains(&[699, 800], 65000), [(1, 699, 0), (1, 800, 0)]);
    }

    #[test]
    fn a_shorter_frame_ends_a_train() {
        assert_eq!(trains(&[8000, 8000, 64, 64], 65000), [(3, 8000, 0), (1, 64, 0)]);
        assert_eq!(trains(&[8000, 64, 8000], 65000), [(2, 8000, 0), (1, 8000, 0)]);
    }

    #[test]
    fn a_longer_frame_begins_a_train() {
        assert_eq!(trains(&[64, 64, 8000, 8000], 65000), [(2, 64, 0), (2, 8000, 0)]);
    }

    #[test]
    fn trains_have_a_longest_length_and_number() {
        assert_eq!(trains(&[8000; 5], 32000), [(4, 8000, 0), (1, 8000, 0)]);
        assert_eq!(trains(&[8000; 2], 100), [(1, 8000, 0); 2]);
        let many = trains(&[64; 100], 65000);
        assert_eq!(many, [(64, 64, 0), (36, 64, 0)]);
    }

    #[test]
    fn the_slowest_of_its_frames_limits_a_train() {
        let frames = |bursts: [usize; 4]| next(bursts.map(|burst| (1000, burst))).unwrap().frames;
        assert_eq!(frames([9000, 9000, 9000, 9000]), 4);
        assert_eq!(frames([9000, 9000, 2999, 9000]), 2);
        assert_eq!(frames([9000, 9000, 3000, 9000]), 3);
        assert_eq!(frames([1, 9000, 9000, 9000]), 1);
    }
}
