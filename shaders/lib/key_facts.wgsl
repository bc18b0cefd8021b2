// Which keys count, for rows of a lane and for some row of any lane.

import package::micro::{SCORES_MASK, Rows, RowIndex, RowMask, lanes_or};
import package::lib::online_softmax::{SCORE_MIN, NEG_INF_BITS};

// The scores of one key, and the rows for which it counts.
struct Key {
    score: Rows,
    live: RowMask,
}

fn key_of(score: Rows, attends: RowMask) -> Key {
    let live = attends & (RowMask(!SCORES_MASK) | (bitcast<RowIndex>(score) != RowIndex(NEG_INF_BITS)));
    return Key(select(Rows(SCORE_MIN), score, live), live);
}

// What is true of two keys for some row: bits that all lanes have in common.

const LIVE: u32 = 1u; // the key counts
const DEAD: u32 = 2u; // it does not
const NEXT: u32 = 4u; // LIVE and DEAD of the next key are as many times as large

fn facts_of(live: RowMask, counts: RowMask) -> u32 {
    return select(0u, LIVE, any(live & counts)) | select(0u, DEAD, any(!live & counts));
}

// Of the rows in `counts`, for which the keys count that are live.
fn facts_of_two(live: RowMask, live_next: RowMask, counts: RowMask) -> u32 {
    return lanes_or(facts_of(live, counts) | NEXT * facts_of(live_next, counts));
}
