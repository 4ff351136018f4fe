// Package assert is the language of assertions: uetperf --assert and --fail-on, and
// what a scenario of the testbed expects.
//
// An assertion is an expression of github.com/expr-lang/expr over metrics, such as
// p99<200us, loss==0 && rtx<0.1% or all.goodput > 0.6 * line("s.to").rate. Beyond that
// language
//
//   - a number may have a unit: 200us, 10Gb/s, 2M/s, 5k, 80%. Where an operand follows, %
//     stays the remainder: 7 % 2. A metric that is held against a number needs a unit of
//     its kind. Against a share, a count is a part of its whole: rtx<0.1% is of the packets
//     sent;
//   - = is ==, and names are found in any case;
//   - tail-max, cpu-peer, p99.9 and msgs/s are names; as a difference or a quotient they
//     are written with blanks;
//   - drops is the sum and drops["crc"] one reason; NAME_ms is a duration in plain
//     milliseconds;
//   - no comparison with a metric that was not measured holds, != included: an assertion
//     about it fails rather than passes on a zero.
package assert
