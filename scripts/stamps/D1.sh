say() { echo "== $(date +%T) $*"; }
mkdir -p /tmp/site /tmp/c1 && python3 -c "import tarfile; tarfile.open('.gpu/site.tar.xz').extractall('/tmp/site')"
make -s autotopk/runtime/_launcher.abi3.so PYTHON=python3
export PYTHONPATH=/tmp/site:$PWD AUTOTOPK_CACHE_DIR=/tmp/c1 PYTHONUNBUFFERED=1
say check; timeout 60 python3 -m autotopk doctor --check 2>&1 | tail -4 | cut -c1-200; find /tmp/c1 -name "*.check" | head; cp $(find /tmp/c1 -name "sm_90.check" | head -1) $OUT/sm_90.check
xz -dc .gpu/t.xz > /tmp/c1/tuning.sqlite
say tune; timeout 150 python3 -m autotopk tune --tag seeds,serving --budget 125 > $OUT/tune.log 2>&1; tail -3 $OUT/tune.log | cut -c1-200; grep -c held_radix $OUT/tune.log
xz -T8 -c /tmp/c1/tuning.sqlite > $OUT/tuning.db.xz
python3 -m autotopk export $OUT/winners.sqlite --winners-only --db /tmp/c1/tuning.sqlite --device H200 --force 2>&1 | tail -1
say long; timeout 75 python3 scripts/long_rows.py --json $OUT/long.json 2>&1 | tail -30 | cut -c1-160
say end
