// Package spelling finds the word that somebody meant.
package spelling

// Closest returns the word that is the least number of letters away from word: letters that are to
// be changed, put in or left out (Levenshtein distance). Words that are most or more away do not
// count; it returns "" if there is none nearer.
func Closest(word string, among []string, most int) string {
	best := ""
	for _, w := range among {
		if d := distance(word, w); d < most {
			best, most = w, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
