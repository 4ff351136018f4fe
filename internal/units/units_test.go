package units

import (
	"reflect"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
	}{
		{"0", 0}, {"8", 8}, {"4K", 4096}, {"4k", 4096}, {"4KiB", 4096}, {"1M", 1 << 20}, {"2G", 2 << 30}, {"1.5K", 1536}, {"64b", 64},
	} {
		got, err := ParseSize(c.in)
		if err != nil || got != c.want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "-1", "K", "1T", "1.0001K", "8x", "1e3", "5i", "9999999999G", "NaN", "0x10"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []int64
	}{
		{"8", []int64{8}},
		{"8,64,1K", []int64{8, 64, 1024}},
		{"8:64:*2", []int64{8, 16, 32, 64}},
		{"8:64", []int64{8, 16, 32, 64}},
		{"8:60:*2", []int64{8, 16, 32}},
		{"0:4:*2", []int64{0, 1, 2, 4}},
		{"1K:3K:+1K", []int64{1024, 2048, 3072}},
		{"1,8:16:*2,1M", []int64{1, 8, 16, 1 << 20}},
	} {
		got, err := ParseSizes(c.in)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("ParseSizes(%q) = %v, %v, want %v", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "8,", "64:8:*2", "8:64:*1", "8:64:*0", "8:64:+0", "8:64:-1", "8:64:", "1:2:3:4", "0:1G:+1", "8:64:*NaN"} {
		if got, err := ParseSizes(in); err == nil {
			t.Errorf("ParseSizes(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]float64{"300": 300, "20k/s": 20e3, "1.5M/s": 1.5e6, "2K": 2000, "1G": 1e9, "0.5/s": 0.5} {
		if got, err := ParseRate(in); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "-5", "k", "/s", "NaN", "Inf", "1e400", "5/m", "5 k"} {
		if got, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", in, got)
		}
	}
}

func TestSizeReadsBack(t *testing.T) {
	for _, n := range []int64{0, 1, 1000, 1024, 1536, 1 << 20, 3 << 30, 1<<20 + 1} {
		if got, err := ParseSize(Size(n)); err != nil || got != n {
			t.Errorf("ParseSize(Size(%d) = %q) = %d, %v", n, Size(n), got, err)
		}
	}
}

func TestForPeople(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"}, {Bytes(1536), "1.50 KiB"}, {Bytes(3 << 30), "3 GiB"}, {Bytes(5000 << 30), "5000 GiB"},
		{Count(0), "0"}, {Count(999), "999"}, {Count(5234567), "5.23 M"}, {Count(0.5), "0.50"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestParseDurationAndShare(t *testing.T) {
	for in, want := range map[string]time.Duration{"10s": 10 * time.Second, "10": 10 * time.Second, "0.5": 500 * time.Millisecond, "1m": time.Minute} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1s", "-1", "10x", "1e30", "NaN"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
	for in, want := range map[string]float64{"1%": 0.01, "0.05": 0.05, "100%": 1, "0": 0} {
		if got, err := ParseShare(in); err != nil || got != want {
			t.Errorf("ParseShare(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1%", "101%", "2", "%", "NaN"} {
		if got, err := ParseShare(in); err == nil {
			t.Errorf("ParseShare(%q) = %v, want an error", in, got)
		}
	}
}
