package page

import (
	"fmt"
	"image/color"
	"strings"
)

// Figures are drawn in stand-in colours that no other part uses. The stand-ins are then
// replaced by variables of the style, so that one drawing serves light and dark.
const (
	inkC = iota
	mutedC
	gridC
	axisC
	badC
	softC
	seriesC                       // seriesN colours for kinds
	rampC     = seriesC + seriesN // rampN colours from small to large
	seriesN   = 8
	rampN     = 16
	colourN   = rampC + rampN
	standInRG = 0xFE01
)

// name returns the name of the style variable of a colour.
func name(i int) string {
	switch {
	case i >= rampC:
		return fmt.Sprintf("--r%d", i-rampC)
	case i >= seriesC:
		return fmt.Sprintf("--s%d", i-seriesC)
	}
	return [...]string{"--ink", "--muted", "--grid", "--axis", "--bad", "--soft"}[i]
}

func standIn(i int) color.Color {
	return color.NRGBA{R: standInRG >> 8, G: standInRG & 0xFF, B: uint8(i), A: 0xFF}
}

func cssVar(i int) string { return "var(" + name(i) + ")" }

// standIns replaces the stand-ins by variables.
var standIns = func() *strings.Replacer {
	var pairs []string
	for i := range colourN {
		pairs = append(pairs, fmt.Sprintf("#%04X%02X", standInRG, i), cssVar(i))
	}
	return strings.NewReplacer(pairs...)
}()

// The colours of kinds differ in lightness, so that readers who do not see red or green can
// tell them apart. Lines get dashes after the first round of colours.
var (
	lightSeries = [seriesN]string{"#0b66c3", "#d1600a", "#128a5c", "#9d3fb5", "#b8860b", "#c2294e", "#4a5a6a", "#2aa5c9"}
	darkSeries  = [seriesN]string{"#5aaefb", "#ff9d4d", "#3ecf95", "#d790ec", "#e8c14a", "#ff7d96", "#a9b8c6", "#6fdcf5"}
)

// colours returns the definitions of the variables, light and dark.
func colours() string {
	one := func(base string, series [seriesN]string, light bool) string {
		var b strings.Builder
		b.WriteString(base)
		for i, c := range series {
			fmt.Fprintf(&b, "--s%d:%s;", i, c)
		}
		for i := range rampN {
			t := float64(i) / (rampN - 1)
			if light { // blue, purple, red, orange
				fmt.Fprintf(&b, "--r%d:hsl(%.0f 75%% %.0f%%);", i, 225+172*t, 40+8*t)
			} else {
				fmt.Fprintf(&b, "--r%d:hsl(%.0f 85%% %.0f%%);", i, 215+182*t, 68-6*t)
			}
		}
		return b.String()
	}
	const light = "--bg:#fff;--ink:#1b222b;--muted:#5b6876;--grid:#dde3ea;--axis:#8a97a5;--soft:#f5f7fa;--link:#0b5fb8;--good:#0d7a4a;--bad:#c01f3c;--fair:#935f00;"
	const dark = "--bg:#12171d;--ink:#e6ebf0;--muted:#9aa8b6;--grid:#2c3641;--axis:#66747f;--soft:#1a2129;--link:#7cbcff;--good:#4fd394;--bad:#ff7d8f;--fair:#f0bd55;"
	return ":root{color-scheme:light dark;" + one(light, lightSeries, true) + "}\n" +
		"@media screen and (prefers-color-scheme:dark){:root{" + one(dark, darkSeries, false) + "}}\n"
}
