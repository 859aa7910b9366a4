//! The datagram of a frame: PROTOCOL.md, *Frames over UDP*.

/// Bytes of the Ethernet header, whose place the frame's length has.
pub const ETHERNET: usize = 14;

/// Where it has the frame's length, big-endian: in place of the EtherType.
const LENGTH_AT: usize = 12;

/// The beginning of the datagram of a frame with `frame_len` bytes.
#[inline]
pub fn header(frame_len: usize) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[LENGTH_AT..].copy_from_slice(&(frame_len as u16).to_be_bytes());
    header
}

/// The length of the frame in a datagram of `datagram_len` bytes that begins with `header`; `None`
/// if the frame is cut short.
#[inline]
pub fn frame_len(header: &[u8; ETHERNET], datagram_len: usize) -> Option<usize> {
    let [high, low] = [header[LENGTH_AT], header[LENGTH_AT + 1]];
    let len = usize::from(u16::from_be_bytes([high, low]));
    (len <= datagram_len).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_the_length_of_its_frame() {
        for len in [64, 1472, 65507] {
            let header = header(len);
            assert_eq!(header[..LENGTH_AT], [0; LENGTH_AT]);
            assert_eq!(frame_len(&header, len), Some(len));
            assert_eq!(frame_len(&header, len + 9), Some(len), "the rest is padding");
            assert_eq!(frame_len(&header, len - 1), None);
        }
    }
}
