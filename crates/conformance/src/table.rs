//! The fields of frames, as `conformance/frames.json` lists them: encodes values of the vectors as
//! bytes, and decodes bytes.
//!
//! Every value is a string of bytes here. So a value received in one field can be sent in another,
//! and values are compared as bytes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Result;
use crate::keys::Keyring;

/// The bytes of fields by name.
pub(crate) type Fields = BTreeMap<String, Vec<u8>>;
/// The values of placeholders.
pub(crate) type Bindings = BTreeMap<String, Vec<u8>>;

/// The layouts of frames and the names of values, as `frames.json` has them. A run encodes what it
/// sends by them, and decodes what comes.
pub(crate) struct Table {
    names: BTreeMap<String, BTreeMap<String, u64>>,
    layouts: BTreeMap<String, Vec<Field>>,
    /// Whether numbers are big-endian on the wire. Values of fields are little-endian here.
    is_big: bool,
    /// The keys of the ends that prove who they are.
    pub(crate) keys: Keyring,
}

/// A field of a frame.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    kind: FieldKind,
}

#[derive(Clone, Debug)]
enum FieldKind {
    /// A little-endian number of that many bytes; with names for values, or for bits.
    Number(usize, Option<String>),
    /// That many bytes.
    Hex(usize),
    /// Text in that many bytes, padded with zeroes.
    Text(usize),
    /// `slot.generation`.
    Tag,
    /// Records of the named layout; the named field has their number.
    List(String, String),
    /// An optional field at the end, of so many bytes.
    Tail(usize),
    /// As many bytes as the named field says.
    Bytes(String),
}

/// A received body or entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoded {
    /// Its fields.
    pub(crate) fields: Fields,
    /// Its lists, by name.
    pub(crate) lists: BTreeMap<String, Vec<Fields>>,
}

impl Table {
    /// Takes the content of `frames.json`, or of `fc-frames.json`.
    ///
    /// # Errors
    /// If it is invalid.
    pub(crate) fn new(value: &Value) -> Result<Self> {
        let names = serde_json::from_value(value["names"].clone());
        let names = names.map_err(|error| format!("names: {error}"))?;
        let mut layouts = BTreeMap::from([("header".to_owned(), layout(&value["header"])?)]);
        let groups =
            [("entries", "entry"), ("lists", "list"), ("bodies", "body"), ("payloads", "payload")];
        for (group, prefix) in groups {
            for (name, fields) in value[group].as_object().into_iter().flatten() {
                layouts.insert(format!("{prefix} {name}"), layout(fields)?);
            }
        }
        let keys = value["keys"].as_object().into_iter().flatten();
        let keys = Keyring::new(
            keys.map(|(name, text)| Ok((name.clone(), hex(text.as_str().unwrap_or("?"))?))),
        )?;
        Ok(Self { names, layouts, is_big: value["order"] == "big", keys })
    }

    /// The value of a name, such as that of a kind of frame.
    ///
    /// # Errors
    /// If there is no such name.
    pub(crate) fn value(&self, group: &str, name: &str) -> Result<u64> {
        let value = self.names.get(group).and_then(|names| names.get(name));
        value.copied().ok_or_else(|| format!("no {group} is called {name:?}"))
    }

    /// The name of a value.
    pub(crate) fn name(&self, group: &str, value: u64) -> Option<&str> {
        let mut names = self.names.get(group)?.iter();
        names.find(|(_, known)| **known == value).map(|(name, _)| name.as_str())
    }

    fn layout(&self, name: &str) -> Result<&[Field]> {
        let fields = self.layouts.get(name).ok_or_else(|| format!("no layout {name:?}"))?;
        Ok(fields)
    }

    /// Whether there is a layout of that name.
    pub(crate) fn has(&self, layout: &str) -> bool {
        self.layouts.contains_key(layout)
    }

    /// Encodes a body, an entry or the header. Fields that `values` does not name are zero, or the
    /// length of a list.
    ///
    /// # Errors
    /// If a value does not fit its field, or belongs to none.
    pub(crate) fn encode(
        &self,
        name: &str,
        values: &Map<String, Value>,
        with: &Bindings,
    ) -> Result<Vec<u8>> {
        let layout = self.layout(name)?;
        for key in values.keys() {
            if !layout.iter().any(|field| field.name == *key) {
                return Err(format!("{name} has no field {key:?}"));
            }
        }
        let mut bytes = Vec::new();
        for field in layout {
            let value = values.get(&field.name);
            match (&field.kind, value) {
                (FieldKind::List(of, _), Some(Value::Array(items))) => {
                    for item in items {
                        bytes.extend(self.encode(&format!("list {of}"), object(item)?, with)?);
                    }
                }
                (FieldKind::List(..) | FieldKind::Tail(_) | FieldKind::Bytes(_), None) => {}
                (FieldKind::Bytes(_), Some(value)) => {
                    bytes.extend(hex(value.as_str().unwrap_or("?"))?);
                }
                (FieldKind::List(..), Some(_)) => return Err(format!("{}: no list", field.name)),
                (kind, Some(value)) => {
                    let encoded = self.encode_value(kind, value, with);
                    let encoded = encoded.map_err(|why| format!("{}: {why}", field.name))?;
                    bytes.extend(self.ordered(kind, encoded));
                }
                (kind, None) => {
                    let counted = layout.iter().find_map(|list| match &list.kind {
                        FieldKind::List(_, count) | FieldKind::Bytes(count)
                            if *count == field.name =>
                        {
                            values.get(&list.name)
                        }
                        _ => None,
                    });
                    let count = match counted {
                        Some(Value::Array(items)) => items.len(),
                        Some(Value::String(text)) => hex(text)?.len(),
                        _ => 0,
                    };
                    let mut default = vec![0; kind.len()];
                    if let (FieldKind::Number(len, _), count) = (kind, count as u64) {
                        default.copy_from_slice(&count.to_le_bytes()[..*len]);
                    }
                    bytes.extend(self.ordered(kind, default));
                }
            }
        }
        Ok(bytes)
    }

    /// A field's bytes on the wire.
    fn ordered(&self, kind: &FieldKind, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.is_big && matches!(kind, FieldKind::Number(..)) {
            bytes.reverse();
        }
        bytes
    }

    fn encode_value(&self, kind: &FieldKind, value: &Value, with: &Bindings) -> Result<Vec<u8>> {
        let len = kind.len();
        let fit = |mut bytes: Vec<u8>| {
            if bytes.len() > len && bytes[len..].iter().any(|&byte| byte != 0) {
                return Err(format!("{} bytes in a field of {len}", bytes.len()));
            }
            bytes.resize(len, 0);
            Ok(bytes)
        };
        match (kind, value) {
            (_, Value::String(text)) if text.starts_with('$') => fit(bound(text, with)?),
            (_, Value::Number(number)) => {
                let number = number.as_u64().ok_or_else(|| format!("{number} is no number"))?;
                fit(number.to_le_bytes().to_vec())
            }
            (FieldKind::Bytes(_), Value::String(text)) => hex(text),
            (FieldKind::Text(_), Value::String(text)) => fit(text.as_bytes().to_vec()),
            (FieldKind::Number(_, Some(group)), Value::String(name)) => {
                fit(self.value(group, name)?.to_le_bytes().to_vec())
            }
            (FieldKind::Number(_, Some(group)), Value::Array(names)) => {
                let bits = names.iter().try_fold(0, |bits, name| {
                    Ok::<_, String>(bits | self.value(group, name.as_str().unwrap_or_default())?)
                });
                fit(bits?.to_le_bytes().to_vec())
            }
            (FieldKind::Tag, Value::String(text)) => {
                let parts = text.split_once('.').and_then(|(slot, generation)| {
                    Some((slot.parse::<u16>().ok()?, generation.parse::<u16>().ok()?))
                });
                let (slot, generation) = parts.ok_or_else(|| format!("{text:?} is no tag"))?;
                Ok([slot.to_le_bytes(), generation.to_le_bytes()].concat())
            }
            (_, Value::String(text)) => fit(hex(text)?),
            (_, value) => Err(format!("{value} is no value of such a field")),
        }
    }

    /// Decodes a body, an entry or the header; also returns the bytes after it.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub(crate) fn decode<'a>(
        &self,
        name: &str,
        mut bytes: &'a [u8],
    ) -> Result<(Decoded, &'a [u8])> {
        let mut decoded = Decoded::default();
        for field in self.layout(name)? {
            if let FieldKind::List(of, count) = &field.kind {
                let mut items = Vec::new();
                for _ in 0..number(&decoded.fields[count]) {
                    let (item, rest) = self.decode(&format!("list {of}"), bytes)?;
                    items.push(item.fields);
                    bytes = rest;
                }
                decoded.lists.insert(field.name.clone(), items);
                continue;
            }
            if let FieldKind::Bytes(count) = &field.kind {
                // Lengths of what peers may leave out.
                let len = number(&decoded.fields[count]) as usize;
                let (value, rest) = bytes.split_at(len.min(bytes.len()));
                decoded.fields.insert(field.name.clone(), value.to_vec());
                bytes = rest;
                continue;
            }
            if matches!(field.kind, FieldKind::Tail(_)) && bytes.is_empty() {
                decoded.fields.insert(field.name.clone(), Vec::new());
                continue;
            }
            let short = || format!("{name} ends before its field {}", field.name);
            let (value, rest) = bytes.split_at_checked(field.kind.len()).ok_or_else(short)?;
            decoded.fields.insert(field.name.clone(), self.ordered(&field.kind, value.to_vec()));
            bytes = rest;
        }
        Ok((decoded, bytes))
    }

    /// The received and the wanted value of a field, both without the bits that may be either way:
    /// the names behind a `?` in a list.
    fn without_optional(
        &self,
        kind: &FieldKind,
        came: &[u8],
        wanted: &Value,
    ) -> Result<(Vec<u8>, Value)> {
        let mut came = came.to_vec();
        let (FieldKind::Number(_, Some(group)), Value::Array(names)) = (kind, wanted) else {
            return Ok((came, wanted.clone()));
        };
        let mut wanted = Vec::new();
        for name in names {
            let Some(optional) = name.as_str().and_then(|name| name.strip_prefix('?')) else {
                wanted.push(name.clone());
                continue;
            };
            for (byte, bits) in came.iter_mut().zip(self.value(group, optional)?.to_le_bytes()) {
                *byte &= !bits;
            }
        }
        Ok((came, Value::Array(wanted)))
    }

    /// Compares received fields with those that are `wanted`, and binds the values to capture.
    ///
    /// # Errors
    /// The first field that differs.
    pub(crate) fn compare(
        &self,
        name: &str,
        wanted: &Map<String, Value>,
        came: &Decoded,
        with: &mut Bindings,
    ) -> Result<()> {
        for (key, value) in wanted {
            let field = self.layout(name)?.iter().find(|field| field.name == *key);
            let field = field.ok_or_else(|| format!("{name} has no field {key:?}"))?;
            if let (FieldKind::List(of, _), Value::Array(items)) = (&field.kind, value) {
                let list = &came.lists[key];
                if list.len() != items.len() {
                    return Err(format!("{key}: {} of them, not {}", list.len(), items.len()));
                }
                for (item, fields) in items.iter().zip(list) {
                    let decoded = Decoded { fields: fields.clone(), lists: BTreeMap::new() };
                    self.compare(&format!("list {of}"), object(item)?, &decoded, with)?;
                }
                continue;
            }
            let (bytes, value) = self.without_optional(&field.kind, &came.fields[key], value)?;
            match value.as_str() {
                Some(text) if text.starts_with('?') => {
                    with.insert(text[1..].to_owned(), bytes);
                }
                Some(text) if text.starts_with('!') => {
                    let other = self.encode_value(&field.kind, &Value::from(&text[1..]), with)?;
                    if other == bytes {
                        return Err(format!("{key} is {} again", shown(&bytes)));
                    }
                }
                _ => {
                    let expected = self.encode_value(&field.kind, &value, with)?;
                    if expected != bytes {
                        let (came, expected) = (shown(&bytes), shown(&expected));
                        return Err(format!("{key} is {came}, not {expected}"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl FieldKind {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let mut word = || words.next().map(str::to_owned);
        Some(match kind {
            "u8" => Self::Number(1, word()),
            "u16" => Self::Number(2, word()),
            "u24" => Self::Number(3, word()),
            "u32" => Self::Number(4, word()),
            "u64" => Self::Number(8, word()),
            "hex" => Self::Hex(word()?.parse().ok()?),
            "text" => Self::Text(word()?.parse().ok()?),
            "tag" => Self::Tag,
            "list" => Self::List(word()?, word()?),
            "bytes" => Self::Bytes(word()?),
            "tail" => Self::Tail(word()?.parse().ok()?),
            _ => return None,
        })
    }

    /// Bytes of the field; a list has none of its own.
    fn len(&self) -> usize {
        match self {
            Self::Number(len, _) | Self::Hex(len) | Self::Text(len) | Self::Tail(len) => *len,
            Self::Tag => 4,
            Self::List(..) | Self::Bytes(_) => 0,
        }
    }
}

fn layout(fields: &Value) -> Result<Vec<Field>> {
    let fields = fields.as_array().ok_or("a layout is a list of fields")?;
    let field = |field: &Value| {
        let (name, kind) = (field[0].as_str()?, FieldKind::parse(field[1].as_str()?)?);
        Some(Field { name: name.to_owned(), kind })
    };
    fields.iter().map(|it| field(it).ok_or_else(|| format!("{it} is no field"))).collect()
}

/// The value as a JSON object.
///
/// # Errors
/// If it is not an object.
pub(crate) fn object(value: &Value) -> Result<&Map<String, Value>> {
    value.as_object().ok_or_else(|| format!("{value} is no object"))
}

/// The value of `$name`, or of `$name+1`: the bytes as a number, plus one.
fn bound(text: &str, with: &Bindings) -> Result<Vec<u8>> {
    let (name, more) = text[1..].split_once('+').unwrap_or((&text[1..], "0"));
    let mut bytes = with.get(name).ok_or_else(|| format!("nothing is bound to ${name}"))?.clone();
    let mut carry: u64 = more.parse().map_err(|_| format!("{text:?}: {more:?} is no number"))?;
    for byte in &mut bytes {
        carry += u64::from(*byte);
        *byte = (carry & 0xff) as u8;
        carry >>= 8;
    }
    Ok(bytes)
}

/// Decodes hexadecimal bytes; blanks and dashes between them are ignored, and `00*57` stands for 57
/// zeroes.
///
/// # Errors
/// If the text is not hexadecimal.
pub(crate) fn hex(text: &str) -> Result<Vec<u8>> {
    let wrong = || format!("{text:?} is not hexadecimal");
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (digits, count) = word.split_once('*').unwrap_or((word, "1"));
        let digits = digits.replace('-', "");
        let pairs = digits.as_bytes().chunks(2);
        let pair = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        };
        let once: Option<Vec<u8>> = pairs.map(pair).collect();
        bytes.extend(once.ok_or_else(wrong)?.repeat(count.parse().map_err(|_| wrong())?));
    }
    Ok(bytes)
}

/// The little-endian number in up to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Bytes for people, shortened if they are long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > 24 { format!("{digits}.. ({} bytes)", bytes.len()) } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_may_repeat_and_have_dashes() {
        assert_eq!(hex("00*3 a1-b2"), Ok(vec![0, 0, 0, 0xa1, 0xb2]));
        assert_eq!(hex("0102*2"), Ok(vec![1, 2, 1, 2]));
        assert_eq!(hex(""), Ok(vec![]));
        assert!(hex("1").is_err() && hex("gg").is_err() && hex("00*x").is_err());
    }

    #[test]
    fn bound_values_may_be_counted_on() {
        let with = Bindings::from([("n".to_owned(), vec![0xff, 0])]);
        assert_eq!(bound("$n", &with), Ok(vec![0xff, 0]));
        assert_eq!(bound("$n+1", &with), Ok(vec![0, 1]));
        assert!(bound("$m", &with).is_err());
    }
}
