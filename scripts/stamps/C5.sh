. .gpu/setup.sh
cp $R/.gpu/*.py /tmp/
rm -rf /tmp/st; cp -r /tmp/new /tmp/st; cd /tmp/st; python3 /tmp/stamp.py
( export PYTHONPATH=/tmp/site:$PWD AUTOTOPK_CACHE_DIR=/tmp/c3; mkdir -p /tmp/c3
say stamps; timeout 100 python3 /tmp/stamps.py )
cd /tmp/new
say hs; timeout 200 python3 /tmp/hs.py held_rows "$1" $2 2>&1 | cut -c1-420
rm -rf /tmp/nS; cp -r /tmp/new /tmp/nS; cd /tmp/nS;  python3 -c "import tarfile; tarfile.open('$R/.gpu/hS.tar.xz').extractall('.')"; export PYTHONPATH=/tmp/site:$PWD
exit; say split; timeout 100 python3 /tmp/hs.py split_radix "3,6,7,10,11,12,16,17,18,19,20,21,22,23,24,25" 2>&1 | cut -c1-200
say end
