// The products of flash_attention_fwd_matrix without matrices: all lanes of a subgroup compute the same sums. Four terms
// a turn, since lavapipe leaves a shader's loops after 65535 turns of them all.

fn multiply_qk(subgroup: u32, subgroups: u32) {
    for (var n = subgroup; n < ROWS * KEYS; n += subgroups) {
        let row = n / KEYS;
        let key = n % KEYS;
        var sum = 0.0;
        for (var column = 0u; column < QK_PADDED; column += 4u) {
            let at = row * Q_LINE + column;
            let left = vec4<f16>(q_tile[at], q_tile[at + 1u], q_tile[at + 2u], q_tile[at + 3u]);
            let to = key * KV_LINE + column;
            let right = vec4<f16>(kv_tile[to], kv_tile[to + 1u], kv_tile[to + 2u], kv_tile[to + 3u]);
            sum += dot(vec4<f32>(left), vec4<f32>(right));
        }
        sums[row * SUM_LINE + key] = sum;
    }
}

fn multiply_pv(first: u32, subgroup: u32, subgroups: u32) {
    for (var n = subgroup; n < ROWS * KEYS; n += subgroups) {
        let row = n / KEYS;
        let column = first + n % KEYS;
        var sum = 0.0;
        for (var key = 0u; key < KEYS; key += 4u) {
            let at = row * P_LINE + key;
            let left = vec4<f16>(p_tile[at], p_tile[at + 1u], p_tile[at + 2u], p_tile[at + 3u]);
            let right = vec4<f16>(
                kv_tile[key * KV_LINE + column],
                kv_tile[(key + 1u) * KV_LINE + column],
                kv_tile[(key + 2u) * KV_LINE + column],
                kv_tile[(key + 3u) * KV_LINE + column],
            );
            sum += dot(vec4<f32>(left), vec4<f32>(right));
        }
        sums[row * SUM_LINE + n % KEYS] = sum;
    }
}
