import{load as p,say as s,t as c}from"./main.js";var f=await p("chat_parts");function m(r,n){let a={...n,...f?.[r]};return(o,t={})=>s(a,o,t)??c(o,t)}export{m as wordsOf};
