#include <cstdio>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>
typedef unsigned long long u64;
template<int MODE,int LOADS> __global__ void __launch_bounds__(1024,1) rd(const uint4* x, size_t stride, unsigned* out, unsigned* clocks){
  extern __shared__ __align__(128) uint4 sm[];
  __shared__ __align__(8) u64 bar;
  unsigned t0=clock(); const uint4* p = x + blockIdx.x*stride; unsigned s=0; const int T=blockDim.x;
  if(MODE<=3){ uint4 v[LOADS];
    #pragma unroll
    for(int i=0;i<LOADS;i++){ const uint4* q=p+i*T+threadIdx.x;
      if(MODE==0) v[i]=__ldcs(q); else if(MODE==1) v[i]=__ldg(q); else if(MODE==2) asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];":"=r"(v[i].x),"=r"(v[i].y),"=r"(v[i].z),"=r"(v[i].w):"l"(q)); else v[i]=__ldcg(q);}
    #pragma unroll
    for(int i=0;i<LOADS;i++) s+=v[i].x^v[i].y^v[i].z^v[i].w;
  } else if(MODE==4){
    unsigned b=(unsigned)__cvta_generic_to_shared(&bar);
    if(threadIdx.x==0){ asm volatile("mbarrier.init.shared.b64 [%0], 1;"::"r"(b)); asm volatile("fence.mbarrier_init.release.cluster;"); 
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"::"r"(b),"r"(LOADS*T*16));
      for(int c=0;c<LOADS;c++) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"::"r"((unsigned)__cvta_generic_to_shared(sm+c*T)),"l"(p+c*T),"r"(T*16),"r"(b):"memory"); }
    __syncthreads();
    unsigned done=0; while(!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0,1,0,p;}":"=r"(done):"r"(b):"memory");
    for(int i=0;i<LOADS;i++){ uint4 v=sm[i*T+threadIdx.x]; s+=v.x^v.y^v.z^v.w; }
  } else { 
    for(int i=0;i<LOADS;i++) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"::"r"((unsigned)__cvta_generic_to_shared(sm+i*T+threadIdx.x)),"l"(p+i*T+threadIdx.x):"memory");
    asm volatile("cp.async.wait_all;":::"memory");
    for(int i=0;i<LOADS;i++){ uint4 v=sm[i*T+threadIdx.x]; s+=v.x^v.y^v.z^v.w; } }
  unsigned t1=clock(); __syncthreads(); unsigned t2=clock();
  if(s==0x12345) out[0]=s; if(threadIdx.x==0) clocks[blockIdx.x*2]=t1-t0, clocks[blockIdx.x*2+1]=t2-t0;
}
__global__ void fill(float* p,size_t n,float v){ for(size_t i=blockIdx.x*(size_t)blockDim.x+threadIdx.x;i<n;i+=gridDim.x*(size_t)blockDim.x) p[i]=v; }
template<int M,int L> void go(const char*name,int ctas,int T,uint4*x,unsigned*out,unsigned*ck,float*fl){
  cudaFuncSetAttribute(rd<M,L>,cudaFuncAttributeMaxDynamicSharedMemorySize,L*T*16);
  cudaEvent_t a,b; cudaEventCreate(&a);cudaEventCreate(&b); std::vector<float> us; std::vector<unsigned> c1,c2; std::vector<unsigned> h(ctas*2);
  for(int r=0;r<9;r++){ fill<<<528,512>>>(fl,75000000,r); cudaDeviceSynchronize(); cudaEventRecord(a); rd<M,L><<<ctas,T,(M>=4)?L*T*16:0>>>(x,(size_t)L*T,out,ck); cudaEventRecord(b); cudaDeviceSynchronize(); float ms; cudaEventElapsedTime(&ms,a,b); us.push_back(ms*1000);
    cudaMemcpy(h.data(),ck,ctas*8,cudaMemcpyDeviceToHost); std::vector<unsigned> e; for(int i=0;i<ctas;i++) e.push_back(h[2*i+1]); std::sort(e.begin(),e.end()); c1.push_back(e[ctas/2]); c2.push_back(e.back()); }
  std::sort(us.begin(),us.end()); std::sort(c1.begin(),c1.end()); std::sort(c2.begin(),c2.end());
  printf("%-10s ctas %3d T %4d L %2d bytes/cta %6d: event %.2f us, block median %u max %u  %s\n",name,ctas,T,L,L*T*16,us[4],c1[4],c2[4],cudaGetErrorString(cudaGetLastError())); }
int main(){ uint4*x; unsigned*out,*ck; float*fl; cudaMalloc(&x,64<<20); cudaMalloc(&out,64); cudaMalloc(&ck,1<<16); cudaMalloc(&fl,300000000); cudaMemset(x,1,64<<20);
 for(int ctas: {1,16,64,128}){
  go<0,8>("ldcs",ctas,1024,x,out,ck,fl); go<1,8>("ldg",ctas,1024,x,out,ck,fl); go<2,8>("noalloc256",ctas,1024,x,out,ck,fl); go<3,8>("ldcg",ctas,1024,x,out,ck,fl); go<4,8>("bulk",ctas,1024,x,out,ck,fl); go<5,8>("cpasync",ctas,1024,x,out,ck,fl);
  go<0,4>("ldcs",ctas,1024,x,out,ck,fl); go<4,4>("bulk",ctas,1024,x,out,ck,fl);go<0,1>("ldcs",ctas,1024,x,out,ck,fl);go<0,16>("ldcs",ctas,512,x,out,ck,fl);go<4,16>("bulk",ctas,512,x,out,ck,fl); }
}
