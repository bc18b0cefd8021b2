// Error function, which WGSL lacks: |error| <= 1.5e-7 in f32 arithmetic over all x.
//
// |x| < 1: x times a polynomial in x^2 (the shape of the series, Abramowitz and Stegun 1964, 7.1.5);
// beyond: 1 - exp(-polynomial), which keeps erfc's relative error small. Both polynomials are least
// squares fits at Chebyshev nodes. erf(4) is 1 in f32.
fn erf(x: f32) -> f32 {
    let t = min(abs(x), 4.0);
    let s = t * t;

    var near = 7.933485903777182e-05;
    near = near * s - 0.0008034844067879021;
    near = near * s + 0.0051912181079387665;
    near = near * s - 0.02685539983212948;
    near = near * s + 0.11283625662326813;
    near = near * s - 0.3761262893676758;
    near = near * s + 1.128379225730896;

    var far = 1.3309389942151029e-05;
    far = far * t - 0.0003175720339640975;
    far = far * t + 0.0034368676133453846;
    far = far * t - 0.022621985524892807;
    far = far * t + 0.10331898182630539;
    far = far * t + 0.6390933394432068;
    far = far * t + 1.125925898551941;
    far = far * t + 0.0007569686276838183;

    return select(sign(x) * (1.0 - exp(-far)), x * near, t < 1.0);
}
