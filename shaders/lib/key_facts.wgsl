// Which keys count, for rows of a lane and for some row of any lane.

import package::micro::{SCORES_MASK, Rows, RowIndex, RowMask};
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

// Facts about the keys of a turn: bit n if key n counts for some row, bit DEAD + n if it does not for some row.
const DEAD: u32 = 16u;

fn facts_of(live: RowMask, counts: RowMask, n: u32) -> u32 {
    return select(0u, 1u << n, any(live & counts)) | select(0u, 1u << (n + DEAD), any(!live & counts));
}

fn some_live(facts: u32) -> bool {
    return (facts & ((1u << DEAD) - 1u)) != 0u;
}

// Facts about so many first keys of which nothing else is known; there is at least one.
fn facts_of_first(count: u32) -> u32 {
    return ((1u << count) - 1u) | 1u;
}
