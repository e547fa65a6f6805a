package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// With -chaos, workers are killed during the sale: they cannot give back anything, and their counts
// of sales are lost with them. So the database counts the sales by itself, and their locks stay
// locked for order.sessionTTL.
const (
	chaosFirst = time.Second
	chaosEvery = 1500 * time.Millisecond
)

// kill ends the process as a power failure would.
func (w *process) kill() {
	w.killed = true
	_ = w.cmd.Process.Kill() // if it has ended just now, that will be seen
}

// pick chooses one of the workers that sell, nil if there is none.
func pick(workers []*process) *process {
	var selling []*process
	for _, w := range workers {
		if !w.done && !w.killed && w.sold > 0 {
			selling = append(selling, w)
		}
	}
	if len(selling) == 0 {
		return nil
	}
	return selling[rand.IntN(len(selling))]
}

// countSales makes the database count each update of the units. The rows are those of the stock.
func (p place) countSales() []string {
	table := []string{`CREATE TABLE IF NOT EXISTS sales (sku TEXT PRIMARY KEY, units BIGINT NOT NULL)`, `DELETE FROM sales`}
	if p.Postgres == "" {
		return append(table,
			`CREATE TRIGGER IF NOT EXISTS shelve AFTER INSERT ON stock BEGIN INSERT INTO sales (sku, units) VALUES (NEW.sku, 0); END`,
			`CREATE TRIGGER IF NOT EXISTS sell AFTER UPDATE OF units ON stock BEGIN UPDATE sales SET units = units + 1 WHERE sku = NEW.sku; END`)
	}
	return append(table,
		`CREATE OR REPLACE FUNCTION shelve() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO sales (sku, units) VALUES (NEW.sku, 0); RETURN NULL; END'`,
		`CREATE OR REPLACE FUNCTION sell() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN UPDATE sales SET units = units + 1 WHERE sku = NEW.sku; RETURN NULL; END'`,
		`DROP TRIGGER IF EXISTS shelve ON stock`,
		`DROP TRIGGER IF EXISTS sell ON stock`,
		`CREATE TRIGGER shelve AFTER INSERT ON stock FOR EACH ROW EXECUTE FUNCTION shelve()`,
		`CREATE TRIGGER sell AFTER UPDATE OF units ON stock FOR EACH ROW EXECUTE FUNCTION sell()`)
}

// counted returns the sales of each SKU, as the database counted them.
func (s *sale) counted(ctx context.Context) ([]int64, error) {
	var sold []int64
	for i := range s.skus {
		n, err := unitsOf(ctx, s.db, `SELECT units FROM sales WHERE sku = $1`, i)
		if err != nil {
			return nil, err
		}
		sold = append(sold, n)
	}
	return sold, nil
}
