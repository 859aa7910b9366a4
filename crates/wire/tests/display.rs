//! The text of every golden frame, as traces show it.

use std::fs;

use crate::frames;

#[test]
fn golden_frames_have_their_texts() {
    let expected = fs::read_to_string(frames::path("tests/golden/display.txt")).unwrap();
    let mut text = String::new();
    for name in frames::GOLDEN {
        let bytes = frames::golden(name);
        let frame = frames::parse(&bytes).unwrap();
        text += &format!("{name}: {frame}\n");
    }
    // Line by line, so that a failure shows only that line.
    for (line, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text, expected, "all texts now");
}
