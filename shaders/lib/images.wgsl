// f32 by fours out of an image that holds a buffer's bytes in their order, four elements a texel.
//
// A software rasteriser reads a texel a lane by straight code for all lanes, where it would walk them for a buffer.

// Texels of a full row.
const IMAGE_WIDTH: u32 = 4096u;

// Where elements 4 i to 4 i + 3 of the buffer are. A place and not the elements, since naga cannot hand an image to a
// function in Metal.
fn texel(i: u32) -> vec2<u32> {
    return vec2<u32>(i % IMAGE_WIDTH, i / IMAGE_WIDTH);
}
