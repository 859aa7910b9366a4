//! Metadata contexts: what a client wants to know of ranges. There is one, `base:allocation`, which
//! tells holes and zeroes.

use super::wire::Fields;

/// The name of the context.
pub(super) const ALLOCATION: &[u8] = b"base:allocation";
/// Its number, once a client has selected it. In lists numbers are zero.
pub(super) const ALLOCATION_ID: u32 = 1;
/// The wildcard for all contexts of its namespace, in lists.
const BASE: &[u8] = b"base:";

/// The data of the options `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextRequest<'a> {
    /// The export's name; the empty name asks for the default.
    pub(super) name: &'a [u8],
    count: u32,
    /// The client asks for the context by its name.
    names: bool,
    /// It asks for all contexts of the namespace.
    names_all: bool,
}

impl<'a> ContextRequest<'a> {
    /// Parses the data; `None` unless the lengths within add up to exactly the length of `data`.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.text()?;
        let count = fields.try_u32()?;
        let (mut names, mut names_all) = (false, false);
        // Each takes four bytes of the data at least, so a large count ends soon.
        for _ in 0..count {
            let query = fields.text()?;
            names |= query == ALLOCATION;
            names_all |= query == BASE;
        }
        fields.0.is_empty().then_some(Self { name, count, names, names_all })
    }

    /// Whether a list for it has the context.
    pub(super) fn lists(&self) -> bool {
        self.count == 0 || self.names || self.names_all
    }

    /// Whether it selects the context.
    pub(super) fn selects(&self) -> bool {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
        let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
        let mut data = text(name);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(text(query)));
        data
    }

    #[test]
    fn a_list_takes_wildcards_and_a_selection_does_not() {
        for (queries, lists, selects) in [
            (&[][..], true, false),
            (&[ALLOCATION], true, true),
            (&[BASE], true, false),
            (&[b"qemu:dirty-bitmap:x"], false, false),
            (&[b"base:allocatio", b"", b"base:allocation "], false, false),
            (&[b"x:y", ALLOCATION, ALLOCATION], true, true),
        ] {
            let data = request(b"vol", queries);
            let request = ContextRequest::parse(&data).unwrap();
            assert_eq!(request.name, b"vol");
            assert_eq!((request.lists(), request.selects()), (lists, selects), "{queries:?}");
        }
    }

    #[test]
    fn a_request_must_add_up() {
        let data = request(b"hi", &[ALLOCATION, b"x:"]);
        assert!(ContextRequest::parse(&data).is_some());
        for len in 0..data.len() {
            assert_eq!(ContextRequest::parse(&data[..len]), None, "cut to {len}");
        }
        assert_eq!(ContextRequest::parse(&[&data[..], &[0]].concat()), None, "one byte too many");
        let many = [&[0, 0, 0, 0][..], &[0xff; 4], &[0; 4000]].concat();
        assert_eq!(ContextRequest::parse(&many), None);
    }
}
