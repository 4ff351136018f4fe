package uet

import (
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
)

// Each knob reaches the FEP, and the zero Tuning leaves the FEP's defaults.
func TestTuningReachesTheFEP(t *testing.T) {
	none := new(Tuning).fep()
	if !reflect.ValueOf(none).IsZero() {
		t.Errorf("not tuned: %+v", none)
	}
	knobs := reflect.TypeFor[Tuning]()
	reached := map[string]string{} // field of transport.Config → knob
	for i := range knobs.NumField() {
		name := knobs.Field(i).Name
		switch name {
		case "Linger", // it is Close's: TestLingerIsBounded
			"KeepSlice", "Crowd": // it is the driver's: TestSliceIsShortened
			continue
		}
		var tuned Tuning
		switch f := reflect.ValueOf(&tuned).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Float64:
			f.SetFloat(0.5)
		case reflect.Struct:
			f.Set(reflect.ValueOf(TrimClasses{1, 2, 3, 4, 5}))
		case reflect.Uint8:
			f.SetUint(1)
		default:
			f.SetInt(12345)
		}
		cfg := reflect.ValueOf(tuned.fep())
		var at []string
		for _, f := range reflect.VisibleFields(cfg.Type()) {
			if !f.Anonymous && !cfg.FieldByIndex(f.Index).IsZero() {
				at = append(at, f.Name)
			}
		}
		if len(at) != 1 || reached[at[0]] != "" {
			t.Errorf("%s is %v of the FEP's configuration", name, at)
			continue
		}
		reached[at[0]] = name
		same := map[string]string{"RTOMin": "RTOInit", "TrimClasses": "Classes", "MaxPDCsPerPeer": "MaxPDCsPerSource"}
		if want := same[name]; at[0] != name && at[0] != want {
			t.Errorf("%s becomes %s", name, at[0])
		}
	}
	if got := (&Tuning{TrimClasses: TrimClasses{1, 2, 3, 4, 5}}).fep().Classes; got != (transport.Classes{Trimmable: 1, TrimmableRTX: 2, Trimmed: 3, TrimmedLastHop: 4, Control: 5}) {
		t.Errorf("classes: %+v", got)
	}
}

// GetInfo refuses values that no endpoint can have, and names the knob.
func TestTuningIsChecked(t *testing.T) {
	for want, c := range map[string]Config{
		"Tuning.BaseRTT":         {Tuning: Tuning{BaseRTT: -1}},
		"Tuning.IdleClose":       {Tuning: Tuning{IdleClose: -time.Second}},
		"Tuning.Window":          {Tuning: Tuning{Window: -1}},
		"Tuning.UnexpectedMsgs":  {Tuning: Tuning{UnexpectedMsgs: -1}},
		"Tuning.UnexpectedShare": {Tuning: Tuning{UnexpectedShare: 1.5}},
		"UnexpectedShare NaN":    {Tuning: Tuning{UnexpectedShare: math.NaN()}},
		"Tuning.RTOMin":          {Tuning: Tuning{RTOMin: time.Second}},
		"above RTOMax":           {Tuning: Tuning{RTOMax: time.Millisecond}},
		"Tuning.LineRate":        {Tuning: Tuning{LineRate: -1}},
		"Tuning.Congestion":      {Tuning: Tuning{Congestion: 3}},
		"Tuning.Trimming":        {Tuning: Tuning{Trimming: true}, NoCRC: true},
	} {
		why := Explain(&Info{Config: c})
		if len(why) == 0 || !strings.Contains(why[0].String(), want) {
			t.Errorf("%s: %v", want, why)
		}
		_, err := GetInfo("127.0.0.1", "", fi.Source, &Info{Config: c})
		if fi.Of(err) != fi.ENODATA {
			t.Errorf("%+v: %v", c.Tuning, err)
		}
	}
	ok(t, (&Tuning{RTOMin: time.Second, RTOMax: time.Second, UnexpectedShare: 1}).check())
}

// The defaults that a check compares with are those of the FEP: it refuses a value just
// beyond the default of another knob.
func TestTuningDefaults(t *testing.T) {
	fits := func(tuned Tuning, want bool) {
		t.Helper()
		cfg := tuned.fep()
		cfg.Local = netip.MustParseAddrPort("192.0.2.1:4793")
		if _, err := transport.New(cfg, rng()); (err == nil) != want || (tuned.check() == nil) != want {
			t.Errorf("%+v: the FEP says %v, we %v", tuned, err, tuned.check())
		}
	}
	for _, c := range []struct {
		first, most time.Duration
		fits        bool
	}{
		{defaultRTOMax, 0, true},
		{defaultRTOMax + 1, 0, false},
		{0, defaultRTOMin, true},
		{0, defaultRTOMin - 1, false},
	} {
		fits(Tuning{RTOMin: c.first, RTOMax: c.most}, c.fits)
	}
	for pdcs := range 9 {
		fits(Tuning{MaxPDCs: pdcs}, true)
		fits(Tuning{MaxPDCs: pdcs, RendezvousMin: 1}, pdcs == 0 || pdcs >= 4)
	}
}
