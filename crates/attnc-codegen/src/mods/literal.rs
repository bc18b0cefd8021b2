//! Numbers as WGSL literals, exact to the bit.

/// The bits of minus infinity.
const NEG_INF: u32 = 0xff80_0000;

/// A finite f32: the shortest decimal that a 64-bit reader rounds back to it.
///
/// WGSL reads unsuffixed literals as 64-bit numbers. The shortest decimal of an f32 may lie just above the
/// largest f32, so that one is written out.
pub(crate) fn finite(value: f32) -> String {
    let short = format!("{value:?}");
    let exact = short.parse::<f64>().is_ok_and(|x| {
        #[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked")]
        let rounded = x as f32;
        rounded.to_bits() == value.to_bits() && x.abs() <= f64::from(f32::MAX)
    });
    if exact {
        short
    } else {
        format!("{:?}", f64::from(value))
    }
}

/// `Some` of the bits where WGSL has no literal: infinities and NaN.
pub(super) fn not_finite(value: f32) -> Option<String> {
    (!value.is_finite()).then(|| {
        let bits = if value.is_nan() {
            0x7fc0_0000
        } else if value < 0.0 {
            NEG_INF
        } else {
            0x7f80_0000u32
        };
        format!("float_bits({bits:#010x}u)")
    })
}

/// An i32, by its low 32 bits; the least one has no literal of its own.
pub(super) fn int(value: i64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "integers wrap at 32 bits")]
    match value as i32 {
        i32::MIN => "(-2147483647i - 1i)".to_owned(),
        n => format!("{n}i"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_read_back_to_the_bit() {
        for value in [
            0.1f32,
            1e-5,
            3.4e38,
            f32::MAX,
            f32::MIN,
            1e-45,
            -0.0,
            16_777_217.0,
        ] {
            let text = finite(value);
            let read: f64 = text.parse().unwrap();
            assert!(read.abs() <= f64::from(f32::MAX), "{text}");
            assert_eq!((read as f32).to_bits(), value.to_bits(), "{text}");
        }
        assert_eq!(finite(0.5), "0.5");
        assert_eq!(finite(1e-12), "1e-12");
    }

    #[test]
    fn what_has_no_literal_is_given_by_its_bits() {
        assert_eq!(not_finite(1.0), None);
        assert_eq!(
            not_finite(f32::NEG_INFINITY).unwrap(),
            "float_bits(0xff800000u)"
        );
        assert_eq!(not_finite(f32::NAN).unwrap(), "float_bits(0x7fc00000u)");
        assert_eq!(int(i64::from(i32::MIN)), "(-2147483647i - 1i)");
        assert_eq!(int(-5), "-5i");
    }
}
