say() { echo "== $(date +%T) $*"; }
mkdir -p /tmp/site /tmp/c1 && python3 -c "import tarfile; tarfile.open('.gpu/site.tar.xz').extractall('/tmp/site')"
make -s autotopk/runtime/_launcher.abi3.so PYTHON=python3
export PYTHONPATH=/tmp/site:$PWD AUTOTOPK_CACHE_DIR=/tmp/c1 PYTHONUNBUFFERED=1
xz -dc .gpu/t.xz > /tmp/c1/tuning.sqlite
say tune; timeout 80 python3 -m autotopk tune --tag seeds,serving --budget 65 > $OUT/tune.log 2>&1; tail -2 $OUT/tune.log | cut -c1-200; grep -c tuned $OUT/tune.log; grep split_radix $OUT/tune.log | cut -c1-140
xz -T8 -c /tmp/c1/tuning.sqlite > $OUT/tuning.db.xz
python3 -m autotopk export $OUT/winners.sqlite --winners-only --db /tmp/c1/tuning.sqlite --device H200 --force 2>&1 | tail -1
say contract; timeout 50 python3 -m pytest -q -n 14 -m gpu -p no:cacheprovider -k "split_radix or wide_radix" tests/contract/test_cuda.py 2>&1 | grep -v arn | tail -3 | cut -c1-200
say selection; timeout 25 python3 -m pytest -q -n 8 -m gpu -p no:cacheprovider tests/runtime/test_selection_cuda.py 2>&1 | grep -v arn | tail -3 | cut -c1-200
mkdir $OUT/j
say bench; cp -r docs/figures /tmp/figs; timeout 25 python3 -m autotopk bench --tag seeds --json /tmp/figs/h200-seeds.json 2>&1 >/dev/null | tail -1; cp /tmp/figs/h200-seeds.json $OUT/j/seeds.json
timeout 30 python3 -m autotopk bench --tag serving --json /tmp/figs/h200-serving.json 2>&1 >/dev/null | tail -1; cp /tmp/figs/h200-serving.json $OUT/j/serving.json
say end
